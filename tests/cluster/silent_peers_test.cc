// Peers that fall silent: stopped (SIGSTOP) at each step of the handshake and in each state. Our
// connects and calls end in their time, our other peers are not disturbed, keepalive notices, and
// nobody is accused who was only kept waiting by ourselves.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <csignal>
#include <thread>

#include "be/base/failpoint.h"
#include "tests/cluster/common/survivor.h"

namespace be::cluster {
namespace {

constexpr Nanoseconds kPatience = 20s;
constexpr Nanoseconds kReturn = 2s;

// Our own time of keepalive; peers that have more patience do not accuse us meanwhile.
constexpr Nanoseconds kInterval = 50ms;
constexpr Nanoseconds kTimeout = 300ms;

NodeOptions options_of(Nanoseconds keepalive_timeout) {
  NodeOptions options = member_options();
  options.engine.keepalive_interval = kInterval;
  options.engine.keepalive_timeout = keepalive_timeout;
  return options;
}

// Nothing but messages wakes it for a long time.
NodeOptions sleepy_options() {
  NodeOptions options = member_options();
  options.engine.keepalive_interval = 20s;
  options.engine.keepalive_timeout = 100s;
  return options;
}

const PeerRole kPatientRole("patient", [](const std::vector<std::string>&) {
  Member member(options_of(60s));
  say(member.address().to_string());
  for (;;) member.drive_for(1s);
  return 0;
});

// Calls the server of its argument with little patience. It says how many calls have ended, and
// every call that has failed.
const PeerRole kHastyRole("hasty", [](const std::vector<std::string>& arguments) {
  Member member(options_of(kTimeout));
  Traffic::Options options;
  options.must_succeed = true;
  options.call_timeout = options.connect_timeout = kPatience;
  Traffic traffic(member, Address::parse(arguments.at(0)).value(), options);
  for (;;) {
    member.drive_for(50ms);
    say(std::to_string(traffic.succeeded()));
    for (const std::string& complaint : traffic.complaints()) say("complaint " + complaint);
  }
  return 0;
});

// Calls the server of its arguments now and then, so that it sleeps in between, and says how long
// each call took (ms). The second argument: a failpoint to stop at, or nothing.
const PeerRole kSlowCallerRole("slow caller", [](const std::vector<std::string>& arguments) {
  Member member(sleepy_options());
  const auto channel =
      rpc::Channel::create(member.node(), Address::parse(arguments.at(0)).value(), {});
  for (int i = 0;; ++i) {
#ifdef BE_FAILPOINTS
    if (i == 5 && !arguments.at(1).empty()) {
      failpoint::arm(arguments.at(1), 1, failpoint::Action::kStop);
    }
#endif
    const Time start = member.now();
    const auto answer = channel->call_and_wait(rpc::method_id(kEcho),
                                               {patterned(member.pool(), 32, 1), {}}, {kPatience});
    say(answer.ok() ? std::to_string((member.now() - start) / 1ms) : answer.status().to_string());
    member.drive_for(20ms);
  }
  return 0;
});

void stop(const apps::ChildProcess& peer) {
  ::kill(peer.pid(), SIGSTOP);
  while (state_of(peer.pid()) != ProcessState::kStopped) std::this_thread::yield();
}

#ifdef BE_FAILPOINTS

// Some at a time, so that one waits for all of them together.
constexpr size_t kAtOnce = 8;

TEST(SilentPeers, StoppedAnywhereConnectsAndCallsEndInTimeAndGoOnWithThePeer) {
  Survivor survivor;
  const ResourceUse start = survivor.settled();
  Traffic::Options options;
  options.call_timeout = 400ms;
  options.connect_timeout = 300ms;
  for (size_t first = 0; first < failpoint::kCount; first += kAtOnce) {
    std::vector<std::unique_ptr<Victim>> victims;
    const size_t end = std::min(first + kAtOnce, failpoint::kCount);
    for (size_t i = first; i < end; ++i) {
      const Fate fate{std::string(failpoint::kNames[i]), 1, true};
      victims.push_back(std::make_unique<Victim>(survivor, fate, options));
    }
    for (size_t i = first; i < end; ++i) {
      ASSERT_TRUE(victims[i - first]->drive_until(ProcessState::kStopped, kPatience))
          << failpoint::kNames[i];
    }
    // Every call to them must end now, and new ones are begun all the time.
    survivor.member().drive_for(2 * options.call_timeout);
    for (size_t i = first; i < end; ++i) {
      Victim& victim = *victims[i - first];
      SCOPED_TRACE(failpoint::kNames[i]);
      const uint64_t before = victim.succeeded();
      victim.signal(SIGCONT);
      EXPECT_TRUE(victim.drive_until([&] { return victim.succeeded() > before; }, kPatience))
          << "it goes on, but not with us";
      for (const std::string& complaint : victim.complaints()) ADD_FAILURE() << complaint;
      victim.signal(SIGKILL);
    }
    victims.clear();
    ASSERT_TRUE(survivor.returns_to(start, kReturn));
  }
  for (const std::string& complaint : survivor.healthy().complaints()) ADD_FAILURE() << complaint;
}

TEST(SilentPeers, APeerThatIsStoppedWhileItWakesUsKeepsNobodyElseFromWakingUs) {
  Member us(sleepy_options());
  const auto sleep = [&us](Nanoseconds longest) {
    us.node().thread(0).run_until([] { return false; }, us.now() + longest);
  };
  const auto healthy = start_peer("slow caller", {us.address().to_string(), ""});
  ASSERT_NE(us.line_of(*healthy, kPatience), "");
  const auto victim = start_peer("slow caller", {us.address().to_string(), "softnic.wake.decided"});
  ASSERT_TRUE(
      us.drive([&] { return state_of(victim->pid()) == ProcessState::kStopped; }, kPatience));
  healthy->read_output();
  while (healthy->next_line()) {
  }
  const Nanoseconds kept = us.kept_from_us();
  for (int i = 0; i < 3; ++i) sleep(700ms);
  const auto forgiven = (us.kept_from_us() - kept) / 1ms;
  healthy->read_output();
  int calls = 0;
  for (auto line = healthy->next_line(); line; line = healthy->next_line(), ++calls) {
    EXPECT_LT(std::stoll(*line), 200 + forgiven);
  }
  EXPECT_GT(calls, 10);
}

#endif

TEST(SilentPeers, KeepaliveNoticesAStoppedPeerThoughWeKeepSending) {
  Member us(options_of(kTimeout));
  const auto peer = start_peer("patient", {});
  const Address address = Address::parse(us.line_of(*peer, kPatience)).value();
  Traffic::Options options;
  options.call_timeout = options.connect_timeout = kPatience;
  options.outstanding = 8;
  Traffic traffic(us, address, options);
  ASSERT_TRUE(us.drive([&] { return traffic.succeeded() > 20; }, kPatience));
  EXPECT_EQ(traffic.failed(), 0u);

  stop(*peer);
  const Time start = us.now();
  const Nanoseconds kept = us.kept_from_us();
  // New calls are begun as long as the old ones have not failed: we never stop sending.
  const auto channel = rpc::Channel::create(us.node(), address, {});
  int sent = 0;
  bool noticed = false;
  while (!noticed && us.now() - start < kPatience) {
    channel->call(rpc::method_id(kEcho), {patterned(us.pool(), 32, 1), {}}, {kPatience},
                  [&](const Result<rpc::Payload>& answer) {
                    noticed |= answer.status().code() == Code::kUnavailable;
                  });
    ++sent;
    us.drive_for(1ms);
  }
  EXPECT_TRUE(noticed);
  EXPECT_GT(sent, 10);
  // The count of silent ticks begins with the first whole interval.
  EXPECT_LT(us.now() - start, kTimeout + 4 * kInterval + (us.kept_from_us() - kept));
  EXPECT_GE(us.now() - start, kTimeout - kInterval);
}

TEST(SilentPeers, AProcessThatWasItselfStoppedDoesNotAccuseItsHealthyPeer) {
  Member us(options_of(60s));
  const auto hasty = start_peer("hasty", {us.address().to_string()});
  ASSERT_NE(us.line_of(*hasty, kPatience), "");
  for (int round = 0; round < 2; ++round) {
    stop(*hasty);
    us.drive_for(3 * kTimeout);
    hasty->signal(SIGCONT);
    us.drive_for(2 * kInterval);
  }
  us.drive_for(2 * kTimeout);  // the accusation would have come
  hasty->read_output();
  uint64_t before = 0;
  for (auto line = hasty->next_line(); line; line = hasty->next_line()) {
    ASSERT_FALSE(line->starts_with("complaint")) << *line;
    before = std::stoull(*line);
  }
  const std::string after = us.line_of(*hasty, kPatience);
  ASSERT_FALSE(after.starts_with("complaint")) << after;
  EXPECT_GT(std::stoull(after), before);  // and the traffic goes on
}

TEST(SilentPeers, AnIoThreadHeldUpByASlowHandlerDoesNotAccuseItsHealthyPeer) {
  Member us(options_of(kTimeout));
  const auto peer = start_peer("patient", {});
  Traffic::Options options;
  options.must_succeed = true;
  options.call_timeout = options.connect_timeout = kPatience;
  Traffic traffic(us, Address::parse(us.line_of(*peer, kPatience)).value(), options);
  ASSERT_TRUE(us.drive([&] { return traffic.succeeded() > 20; }, kPatience));
  for (int round = 0; round < 2; ++round) {
    us.node().thread(0).post([] { std::this_thread::sleep_for(3 * kTimeout); });
    us.drive_for(2 * kInterval);
  }
  us.drive_for(2 * kTimeout);
  for (const std::string& complaint : traffic.complaints()) ADD_FAILURE() << complaint;
  EXPECT_EQ(traffic.failed(), 0u);
  const uint64_t before = traffic.succeeded();
  EXPECT_TRUE(us.drive([&] { return traffic.succeeded() > before; }, kPatience));
}

}  // namespace
}  // namespace be::cluster
