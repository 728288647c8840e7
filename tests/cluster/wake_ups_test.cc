// No wake-up is lost: whoever sleeps over softnic is woken by what comes, at whatever moment it
// comes.
//
// Two kinds of proof. Step by step, in one process, at the places where a wake-up could be lost:
//
//   poll: nothing  |1|  ibv_req_notify_cq  |2|  poll: nothing  |3|  epoll_wait
//
// what arrives at 1, 2 or 3 ends the sleep without further traffic. And by numbers: two processes
// that sleep before every message, with random pauses, so that the arrival falls anywhere; nothing
// else would wake them (a keepalive each hour), so one loss is a hang.
//
//   BE_TEST_WAKE_UPS=1000000 cluster_wake_ups --gtest_filter='*Million*'      the long form
#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "be/base/world.h"
#include "be/transport/node.h"
#include "tests/cluster/common/forked_child.h"
#include "tests/unit/softnic/fixture.h"

namespace be::cluster {
namespace {

constexpr Nanoseconds kPatience = 30s;

// --- The device, step by step ---

// A sleeper `b` and its peer `a`; `members` queue pairs more share the sleeper's queue: few are
// looked at one by one, many by their ready bits.
class Steps : public testing::TestWithParam<uint32_t> {
 protected:
  void SetUp() override {
    connect(a, b);
    for (uint32_t i = 0; i < GetParam(); ++i) {
      QueuePairOptions options;
      options.send_cq = options.recv_cq = b.cq;
      options.send_depth = options.recv_depth = 4;
      others_.push_back(b.device->create_qp(options).value().qp);
    }
    b.poll();
    for (int i = 0; i < 8; ++i) ASSERT_EQ(b.post_recv(0, 8192, 7), 0);
    for (int i = 0; i < 8; ++i) ASSERT_EQ(a.post_recv(0, 8192, 8), 0);
  }
  void TearDown() override {
    for (ibv_qp* qp : others_) EXPECT_EQ(b.device->retire_qp(qp).value(), kQuiescedNow);
    disconnect(a, b);
  }

  static void nothing(End& end) { EXPECT_TRUE(end.poll().empty()); }
  static void arm(End& end) { ASSERT_EQ(ibv_req_notify_cq(end.cq, 0), 0); }
  // Asleep, it is woken by what has come already, once, and finds `wr_id`.
  static void wakes(End& end, uint64_t wr_id) {
    ASSERT_TRUE(end.readable()) << "sleeps for ever";
    const auto events = end.events();
    ASSERT_EQ(events.size(), 1u);
    EXPECT_EQ(events[0].kind, DeviceEvent::Kind::kCompletion);
    const auto completions = end.poll();
    ASSERT_EQ(completions.size(), 1u);
    EXPECT_EQ(completions[0].status, IBV_WC_SUCCESS);
    EXPECT_EQ(completions[0].wr_id, wr_id);
    EXPECT_FALSE(end.readable());
  }

  // What can arrive, and the wr_id of its completion.
  struct Arrival {
    const char* name;
    std::function<void()> prepare;  // before the sleeper's last poll
    std::function<void()> happen;
    uint64_t wr_id;
  };
  std::vector<Arrival> arrivals() {
    const auto none = [] {};
    return {
        {"a message in its slot", none, [&] { ASSERT_EQ(a.post_send(0, 8, 1, 0), 0); }, 7},
        {"a message to fetch", none, [&] { ASSERT_EQ(a.post_send(0, 8192, 1, 0), 0); }, 7},
        {"a written message", none,
         [&] { ASSERT_EQ(a.post_write(0, 64, b, 0, 1, IBV_WR_RDMA_WRITE_WITH_IMM, 5, 0), 0); }, 7},
        {"a large written message", none,
         [&] {
           ASSERT_EQ(a.post_write(0, 64 << 10, b, 0, 1, IBV_WR_RDMA_WRITE_WITH_IMM, 5, 0), 0);
           a.poll();  // executes it
         },
         7},
        {"an acknowledgement told by a poll", [&] { ASSERT_EQ(b.post_send(0, 8, 9), 0); },
         [&] {
           ASSERT_EQ(a.poll().size(), 1u);
           a.poll();
         },
         9},
        {"an acknowledgement told by one who goes to sleep",
         [&] { ASSERT_EQ(b.post_send(0, 8, 9), 0); },
         [&] {
           ASSERT_EQ(a.poll().size(), 1u);
           arm(a);
           a.events();
         },
         9},
    };
  }

  End a;
  End b;

 private:
  std::vector<ibv_qp*> others_;
};

TEST_P(Steps, WhatComesBetweenTheLastPollAndTheArmingWakes) {
  for (const Arrival& arrival : arrivals()) {
    SCOPED_TRACE(arrival.name);
    arrival.prepare();
    nothing(b);
    arrival.happen();
    arm(b);
    wakes(b, arrival.wr_id);
    a.poll();
    b.poll();
  }
}

TEST_P(Steps, WhatComesBetweenTheArmingAndTheSleepWakes) {
  for (const bool polls_again : {false, true}) {
    for (const Arrival& arrival : arrivals()) {
      SCOPED_TRACE(arrival.name);
      arrival.prepare();
      nothing(b);
      arm(b);
      if (polls_again) nothing(b);
      EXPECT_FALSE(b.readable());
      arrival.happen();
      wakes(b, arrival.wr_id);
      a.poll();
      b.poll();
    }
  }
}

TEST_P(Steps, WhatThePollAfterTheArmingHasTakenLeavesNothingArmedBehind) {
  for (const Arrival& arrival : arrivals()) {
    SCOPED_TRACE(arrival.name);
    arrival.prepare();
    nothing(b);
    arm(b);
    arrival.happen();
    ASSERT_EQ(b.poll().size(), 1u);
    EXPECT_TRUE(b.readable()) << "its event is still to be taken";
    b.events();
    arrival.prepare();
    nothing(b);
    arm(b);
    EXPECT_FALSE(b.readable());
    arrival.happen();
    wakes(b, arrival.wr_id);
    a.poll();
    b.poll();
  }
}

INSTANTIATE_TEST_SUITE_P(WakeUps, Steps, testing::Values(0u, 20u));

// --- The I/O thread, step by step ---

NodeOptions options() {
  NodeOptions made;
  made.transport = TransportChoice::kSoftnic;
  made.spin = 0ns;
  made.engine.keepalive_interval = made.engine.keepalive_timeout = 1h;  // wakes nobody
  made.memory.cap_bytes = size_t{64} << 20;
  return made;
}

// Counts how often its thread goes to sleep, and calls `before_sleep` right before.
class WatchedPoller final : public Poller {
 public:
  explicit WatchedPoller(std::unique_ptr<Poller> poller, std::function<void()>& before_sleep)
      : poller_(std::move(poller)), before_sleep_(before_sleep) {}
  Status add(int fd, PollHandler* handler, bool writable) override {
    return poller_->add(fd, handler, writable);
  }
  Status set_writable(int fd, bool on) override { return poller_->set_writable(fd, on); }
  Status set_readable(int fd, bool on) override { return poller_->set_readable(fd, on); }
  void remove(int fd) override { poller_->remove(fd); }
  int wait(Time until) override {
    if (until > kernel_world().now() && before_sleep_) before_sleep_();
    return poller_->wait(until);
  }
  void wake() override { poller_->wake(); }
  bool yield() override { return poller_->yield(); }

 private:
  std::unique_ptr<Poller> poller_;
  std::function<void()>& before_sleep_;
};

class WatchedWorld final : public World {
 public:
  virtual ~WatchedWorld() = default;
  Clock& clock() override { return kernel_world().clock(); }
  Executor& executor() override { return kernel_world().executor(); }
  StreamNetwork& network() override { return kernel_world().network(); }
  Result<std::unique_ptr<Poller>> make_poller() override {
    BE_ASSIGN_OR_RETURN(std::unique_ptr<Poller> poller, kernel_world().make_poller());
    return std::unique_ptr<Poller>(new WatchedPoller(std::move(poller), before_sleep));
  }
  void random_bytes(std::span<uint8_t> out) override { kernel_world().random_bytes(out); }

  std::function<void()> before_sleep;
};

class Handler final : public SocketHandler {
 public:
  virtual ~Handler() = default;
  void on_open(Socket& opened) override { socket = &opened; }
  void on_message(Socket& from, Buffer buffer) override {
    ++received;
    if (on_received) on_received(from, std::move(buffer));
  }
  void on_sent(Socket&, uint64_t, const Status& status) override {
    EXPECT_TRUE(status.ok()) << status.to_string();
    ++sent;
  }
  void on_closed(Socket&, const Status&) override { socket = nullptr; }

  Status send(Node& node, size_t bytes, uint64_t cookie = 0) {
    BE_ASSIGN_OR_RETURN(Buffer buffer, node.pool().allocate_buffer(bytes));
    Message message(std::move(buffer));
    return socket->send(message, cookie);
  }

  Socket* socket = nullptr;
  uint64_t received = 0;
  uint64_t sent = 0;
  std::function<void(Socket&, Buffer)> on_received;
};

// What the device's user calls before it sleeps, with something done right before it.
std::function<void()> before_arming;
int (*real_req_notify_cq)(ibv_cq*, int) = nullptr;
int hooked_req_notify_cq(ibv_cq* cq, int solicited_only) {
  if (before_arming) std::exchange(before_arming, nullptr)();
  return real_req_notify_cq(cq, solicited_only);
}

// Two driven nodes in this thread: while one is about to sleep, the other one acts.
class ThreadSteps : public testing::Test {
 protected:
  void SetUp() override {
    NodeOptions driven = options();
    driven.driven = true;
    driven.engine.recv_queue_depth = 2;  // few credits
    auto device = open_softnic({}).value();
    ibv_context* context = device->pd()->context;
    real_req_notify_cq = context->ops.req_notify_cq;
    context->ops.req_notify_cq = hooked_req_notify_cq;
    std::vector<std::unique_ptr<Device>> devices;
    devices.push_back(std::move(device));
    sleeper = Node::create(world, driven, std::move(devices)).value();
    peer = Node::create(kernel_world(), driven).value();
    listener = peer->listen(*Address::parse("127.0.0.1:0"),
                            [this](Socket& socket) -> SocketHandler* {
                              theirs.socket = &socket;
                              return &theirs;
                            })
                   .value();
    sleeper->connect(listener->address(), {.connect_timeout = kPatience, .transport = {}}, &ours);
    for (int i = 0; i < 1'000'000 && ours.socket == nullptr; ++i) both();
    ASSERT_NE(ours.socket, nullptr);
    for (int i = 0; i < 1000; ++i) both();
  }
  void TearDown() override {
    world.before_sleep = before_arming = nullptr;
    listener.reset();
    ours.socket->close();
    for (int i = 0; i < 10'000'000 && (ours.socket != nullptr || theirs.socket != nullptr); ++i) {
      both();
    }
    // A node that ends waits for its peer to let go of its memory.
    std::atomic<bool> gone = false;
    std::thread ending([&] {
      sleeper.reset();
      gone = true;
    });
    while (!gone) peer->thread(0).poll();
    ending.join();
  }

  void both() {
    sleeper->thread(0).poll();
    peer->thread(0).poll();
  }
  // Runs the sleeper until `done`; false: it has slept for ever.
  bool run(const std::function<bool()>& done, Nanoseconds patience = kPatience) {
    return sleeper->thread(0).run_until(done, kernel_world().now() + patience);
  }
  // The peer's turn, from within the sleeper's.
  void let_peer(int turns) {
    for (int i = 0; i < turns; ++i) peer->thread(0).poll();
  }

  WatchedWorld world;
  std::unique_ptr<Node> sleeper;
  std::unique_ptr<Node> peer;
  std::unique_ptr<Listener> listener;
  Handler ours;
  Handler theirs;
};

TEST_F(ThreadSteps, AMessageBetweenTheLastPollAndTheArmingIsDelivered) {
  for (uint64_t round = 1; round <= 20; ++round) {
    before_arming = [&] {
      ASSERT_TRUE(theirs.send(*peer, 32).ok());
      let_peer(3);
    };
    ASSERT_TRUE(run([&] { return ours.received == round; })) << "slept for ever, round " << round;
    EXPECT_EQ(before_arming, nullptr);
  }
}

TEST_F(ThreadSteps, AMessageBetweenTheLastLookAndTheSleepIsDelivered) {
  for (uint64_t round = 1; round <= 20; ++round) {
    world.before_sleep = [&] {
      world.before_sleep = nullptr;
      ASSERT_TRUE(theirs.send(*peer, 32).ok());
      let_peer(3);
    };
    ASSERT_TRUE(run([&] { return ours.received == round; })) << "slept for ever, round " << round;
    EXPECT_EQ(world.before_sleep, nullptr);
  }
}

TEST_F(ThreadSteps, ALargeMessageIsCompletedByOneWhoActsOnlyWhileTheOtherSleeps) {
  world.before_sleep = [&] { let_peer(1); };
  ASSERT_TRUE(ours.send(*sleeper, 1'000'000, 1).ok());
  EXPECT_TRUE(run([&] { return ours.sent == 1; })) << "slept for ever";
  EXPECT_EQ(theirs.received, 1u);
}

TEST_F(ThreadSteps, ASenderAsleepForCreditIsWokenByTheCredit) {
  constexpr uint64_t kMessages = 40;
  int sleeps = 0;
  world.before_sleep = [&] {
    ++sleeps;
    let_peer(3);  // takes what has come and returns its credits; the sender has looked already
  };
  for (uint64_t i = 1; i <= kMessages; ++i) ASSERT_TRUE(ours.send(*sleeper, 32, i).ok());
  EXPECT_TRUE(run([&] { return ours.sent == kMessages; })) << "slept for ever";
  EXPECT_EQ(theirs.received, kMessages);
  EXPECT_GE(sleeps, static_cast<int>(kMessages) / 4) << "two credits carry two messages";
}

// --- Two processes, by numbers ---

// Keeps the thread busy, mostly for a moment shorter than it takes to fall asleep.
class Pauses {
 public:
  explicit Pauses(uint32_t seed) : random_(seed) {}
  void pause() {
    const uint32_t longest = 1u << (random_() % 16);  // up to 33 us
    const Time until = kernel_world().now() + Nanoseconds(random_() % longest);
    while (kernel_world().now() < until) {
    }
  }

 private:
  std::minstd_rand random_;
};

NodeOptions sleepy(Nanoseconds completion_delay) {
  NodeOptions made = options();
  made.softnic.completion_delay = completion_delay;
  return made;
}

void echo_sleepily(Wire& parent, Nanoseconds completion_delay) {
  std::atomic<uint64_t> sleeps = 0;
  WatchedWorld world;
  world.before_sleep = [&] { ++sleeps; };
  Pauses pauses(1);
  Handler handler;
  handler.on_received = [&](Socket& socket, Buffer buffer) {
    pauses.pause();
    Message message(std::move(buffer));
    if (!socket.send(message, 0).ok()) std::abort();
  };
  auto node = Node::create(world, sleepy(completion_delay)).value();
  auto listener = node->listen(*Address::parse("127.0.0.1:0"),
                               [&](Socket&) -> SocketHandler* { return &handler; })
                      .value();
  parent.say(listener->address().port);
  while (parent.hear(24h).has_value()) parent.say(sleeps);
  _exit(0);
}

uint64_t wanted_wake_ups() {
  const char* set = std::getenv("BE_TEST_WAKE_UPS");
  return set != nullptr ? std::strtoull(set, nullptr, 10) : 10'000;
}

class Asleep : public testing::TestWithParam<Nanoseconds> {};

TEST_P(Asleep, AMillionSleepsWithRandomPausesLoseNoWakeUp) {
  ForkedChild server([](Wire& wire) { echo_sleepily(wire, GetParam()); });
  Address address = *Address::parse("127.0.0.1:0");
  address.port = static_cast<uint16_t>(server.wire().hear().value_or(0));
  ASSERT_NE(address.port, 0);
  uint64_t sleeps = 0;
  WatchedWorld world;
  world.before_sleep = [&] { ++sleeps; };
  NodeOptions driven = sleepy(GetParam());
  driven.driven = true;
  auto node = Node::create(world, driven).value();
  Handler handler;
  node->connect(address, {.connect_timeout = kPatience, .transport = {}}, &handler);
  IoThread& thread = node->thread(0);
  const auto run = [&](const std::function<bool()>& done) {
    return thread.run_until(done, thread.now() + kPatience);
  };
  ASSERT_TRUE(run([&] { return handler.socket != nullptr; }));

  const uint64_t wanted = wanted_wake_ups();
  const auto server_sleeps = [&] {
    server.wire().say(1);
    return server.wire().hear().value_or(0);
  };
  Pauses pauses(2);
  const Time start = kernel_world().now();
  uint64_t rounds = 0;
  uint64_t theirs = 0;
  while (sleeps + theirs < wanted) {
    for (int i = 0; i < 1000; ++i) {
      pauses.pause();
      ASSERT_TRUE(handler.send(*node, 32, 1).ok());
      ++rounds;
      ASSERT_TRUE(run([&] { return handler.received == rounds && handler.sent == rounds; }))
          << "one side sleeps for ever after " << rounds << " round trips";
    }
    theirs = server_sleeps();
  }
  const double seconds = std::chrono::duration<double>(kernel_world().now() - start).count();
  std::printf("%lu round trips, %lu + %lu sleeps, %.1f s\n", static_cast<unsigned long>(rounds),
              static_cast<unsigned long>(sleeps), static_cast<unsigned long>(theirs), seconds);
  EXPECT_GE(sleeps, rounds / 4) << "both sides are to sleep";
  EXPECT_GE(theirs, rounds / 4);
  handler.socket->close();
  EXPECT_TRUE(run([&] { return handler.socket == nullptr; }));
}

INSTANTIATE_TEST_SUITE_P(WakeUps, Asleep, testing::Values(0us, 50us));

}  // namespace
}  // namespace be::cluster
