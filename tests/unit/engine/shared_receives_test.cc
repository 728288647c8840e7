// Many engines of one I/O thread on one SRQ: credits go where they are used, nobody is starved.
#include "be/engine/shared_receives.h"

#include <algorithm>

#include "be/base/log.h"
#include "tests/unit/engine/engine_pair.h"

namespace be {
namespace {

EngineOptions small_options() {
  EngineOptions options;
  options.recv_queue_depth = 16;
  options.grants = 2;
  options.write_requests = 2;
  options.grant_cancels = 1;
  options.eager_bytes = 4096;
  options.shared_receives = 1;  // so that their least is known
  return options;
}

uint32_t least(const EngineOptions& options) {
  return reserved_receives(options) + initial_credits(options);
}

// Engines that share a station, its completion queue and the SRQ.
class Hub final : public Station {
 public:
  struct Member final : EngineUser {
    virtual ~Member() = default;
    void on_frame(FrameKind, SocketId, Buffer payload) override {
      ++received;
      if (keeps) kept.push_back(std::move(payload));
    }
    void on_sent(SocketId, uint64_t, const Status&) override {}
    void on_engine_failed(const Status& status) override { failure = status; }

    std::unique_ptr<Engine> engine;
    uint32_t queue_pair = 0;
    bool keeps = false;
    std::vector<Buffer> kept;
    uint64_t received = 0;
    Status failure;
  };

  Hub(const EngineOptions& options, size_t cap_bytes = size_t{64} << 20)
      : Station(cap_bytes), options_(options) {
    if (options.shared_receives == 0) return;
    shared = std::make_unique<SharedReceives>(SharedReceives::Resources{
        .device = device.get(),
        .pool = pool.get(),
        .device_index = 0,
        .entries = options.shared_receives,
        .bytes = options.eager_bytes,
        .completions = kTestCompletions,
        .wake = {},
    });
  }
  ~Hub() {
    for (auto& member : members) {
      member->kept.clear();
      member->engine->fail(error(Code::kClosed, "end of test"));
    }
    for (int i = 0; i < 100000 && !all_dead(); ++i) {
      if (help) help();
      pump();
      now += 1ms;
    }
    EXPECT_TRUE(all_dead());
    members.clear();
    EXPECT_TRUE(shared == nullptr || shared->srq() == nullptr) << "goes with the last engine";
  }

  Result<Member*> add() {
    Engine::Resources resources;
    resources.device = device.get();
    resources.pool = pool.get();
    resources.cq = cq;
    resources.shared_receives = shared.get();
    resources.engine_index = static_cast<uint32_t>(members.size());
    resources.peer = "peer " + std::to_string(members.size());
    auto member = std::make_unique<Member>();
    BE_ASSIGN_OR_RETURN(member->engine, Engine::create(resources, options_, member.get()));
    member->queue_pair = member->engine->qp()->qp_num;
    members.push_back(std::move(member));
    return members.back().get();
  }

  void pump() {
    std::vector<DeviceEvent> events;
    channel->take_events(events);
    for (const DeviceEvent& event : events) {
      for (auto& member : members) {
        Engine& engine = *member->engine;
        if (event.kind == DeviceEvent::Kind::kQuiesced) engine.on_quiesced(event.token);
        if (event.qp == nullptr || engine.qp() != event.qp) continue;
        if (event.kind == DeviceEvent::Kind::kConnected) engine.on_connected(event.status, now);
        if (event.kind == DeviceEvent::Kind::kQpFatal) engine.fail(event.status);
        if (event.kind == DeviceEvent::Kind::kLastWqeReached) engine.on_last_receive();
      }
    }
    ibv_wc completions[16];
    const int count = ibv_poll_cq(cq, 16, completions);
    for (int i = 0; i < count; ++i) member_of(completions[i]).engine->on_completion(completions[i]);
    if (shared != nullptr) {
      EXPECT_TRUE(shared->polled(static_cast<uint32_t>(count), count < 16, now).ok());
      if (shared->memory_freed() || now >= shared->next_retry()) {
        EXPECT_TRUE(shared->retry(now).ok());
      }
      ASSERT_EQ(shared->broken_invariant(), nullptr);
    }
    for (auto& member : members) {
      if (member->engine->wants_progress()) member->engine->progress(now);
      if (member->engine->next_tick() <= now) member->engine->tick(now);
      ASSERT_EQ(member->engine->broken_invariant(), nullptr);
    }
  }

  std::unique_ptr<SharedReceives> shared;
  std::vector<std::unique_ptr<Member>> members;
  Time now{};
  std::function<void()> help;

 private:
  Member& member_of(const ibv_wc& completion) {
    if (!SharedReceives::owns(completion.wr_id)) {
      return *members[Engine::engine_index_of(completion.wr_id)];
    }
    return **std::find_if(members.begin(), members.end(), [&](const auto& member) {
      return member->queue_pair == completion.qp_num;
    });
  }
  bool all_dead() const {
    return std::all_of(members.begin(), members.end(), [](const auto& member) {
      const Engine::State state = member->engine->state();
      return state == Engine::State::kInit || state == Engine::State::kDead;
    });
  }

  const EngineOptions options_;
};

class SharedReceivesTest : public testing::Test {
 protected:
  void make(const EngineOptions& options, size_t engines, size_t cap_bytes = size_t{64} << 20) {
    hub = std::make_unique<Hub>(options, cap_bytes);
    EngineOptions own = options;
    own.shared_receives = 0;
    for (size_t i = 0; i < engines; ++i) {
      Hub::Member* member = hub->add().value();
      peers.push_back(std::make_unique<EngineEnd>(own));
      peers.back()->help = [this] { hub->pump(); };
      EngineEnd& peer = *peers.back();
      ASSERT_TRUE(peer.engine
                      ->connect(member->engine->local_terms(),
                                member->engine->local_endpoint().value(), kToken, true)
                      .ok());
      ASSERT_TRUE(member->engine
                      ->connect(peer.engine->local_terms(), peer.engine->local_endpoint().value(),
                                kToken, false)
                      .ok());
    }
    hub->help = [this] {
      for (auto& peer : peers) peer->pump();
    };
    ASSERT_TRUE(run([this] {
      return std::all_of(hub->members.begin(), hub->members.end(), [](const auto& member) {
        return member->engine->state() == Engine::State::kReady;
      });
    }));
  }
  void TearDown() override {
    for (auto& member : hub->members) member->kept.clear();
    peers.clear();
    hub.reset();
  }
  bool run(const std::function<bool()>& done, int turns = 20000) {
    for (int i = 0; i < turns; ++i) {
      if (done()) return true;
      hub->pump();
      for (auto& peer : peers) peer->pump();
    }
    return done();
  }
  void pump(int turns) {
    run([] { return false; }, turns);
  }
  void pass(Nanoseconds time) {
    hub->now += time;
    for (auto& peer : peers) peer->now += time;
    pump(20);
  }
  void send(size_t peer, int messages, size_t bytes) {
    for (int i = 0; i < messages; ++i) {
      ASSERT_TRUE(peers[peer]->send_text(1, pattern(bytes, 1)).ok());
    }
  }
  uint32_t dealt(SharedReceives::Id id) { return hub->shared->dealt(id); }

  std::unique_ptr<Hub> hub;
  std::vector<std::unique_ptr<EngineEnd>> peers;
};

TEST_F(SharedReceivesTest, CreditsFollowDemandFromOnePeerToAnother) {
  EngineOptions options = small_options();
  options.shared_receives = 2 * least(options) + 12;
  make(options, 2);
  EXPECT_EQ(dealt(0), 4u);
  EXPECT_EQ(dealt(1), 4u);
  send(0, 300, 1000);
  uint32_t most = 0;
  ASSERT_TRUE(run([&] {
    most = std::max(most, dealt(0));
    return hub->members[0]->received == 300;
  }));
  EXPECT_EQ(most, 4u + 6) << "its floor and half of what is beyond the floors";
  EXPECT_EQ(dealt(1), 4u);
  for (int i = 0; i < 4; ++i) pass(1s);
  EXPECT_EQ(dealt(0), 4u) << "idle for an interval: given back";

  send(1, 300, 1000);
  most = 0;
  ASSERT_TRUE(run([&] {
    most = std::max(most, dealt(1));
    return hub->members[1]->received == 300;
  }));
  EXPECT_EQ(most, 4u + 6);
  EXPECT_TRUE(hub->members[0]->failure.ok() && hub->members[1]->failure.ok());
}

TEST_F(SharedReceivesTest, ManyPeersThatSendAtOnceAllGetThrough) {
  EngineOptions options = small_options();
  options.shared_receives = 12 * least(options) + 8;
  make(options, 12);
  for (size_t i = 0; i < peers.size(); ++i) {
    send(i, 200, i % 2 == 0 ? 100 : 3000);
    send(i, 3, 50000);
  }
  ASSERT_TRUE(run([&] {
    return std::all_of(hub->members.begin(), hub->members.end(),
                       [](const auto& member) { return member->received == 203; });
  }));
}

TEST_F(SharedReceivesTest, AnEngineThatDoesNotFitIsRefusedWithTheNumbers) {
  EngineOptions options = small_options();
  options.shared_receives = 2 * least(options) + 5;
  make(options, 2);
  const auto third = hub->add();
  ASSERT_FALSE(third.ok());
  EXPECT_EQ(third.status().code(), Code::kResourceExhausted);
  EXPECT_NE(
      third.status().message().find(fmt::format("{} more are needed, 5 are free", least(options))),
      std::string::npos)
      << third.status().to_string();
  EXPECT_NE(third.status().message().find("engine.shared_receives"), std::string::npos);
  // With the end of another there is room again.
  hub->members[0]->engine->fail(error(Code::kUnavailable, "cable cut"));
  ASSERT_TRUE(run([&] { return hub->members[0]->engine->state() == Engine::State::kDead; }));
  EXPECT_TRUE(hub->add().ok());
}

TEST_F(SharedReceivesTest, ASlowApplicationThrottlesItsPeerAndTheOthersFlow) {
  EngineOptions options = small_options();
  options.shared_receives = 3 * least(options) + 24;
  make(options, 3, size_t{768} << 10);
  Hub::Member& slow = *hub->members[0];
  slow.keeps = true;
  send(0, 500, 3000);
  pump(500);
  ASSERT_LT(slow.received, 300u) << "the cap";
  EXPECT_GT(slow.engine->stats().memory_stalls, 0u);
  const uint64_t received = slow.received;

  for (const size_t quick : {1, 2}) send(quick, 400, 3000);
  ASSERT_TRUE(
      run([&] { return hub->members[1]->received == 400 && hub->members[2]->received == 400; }));
  EXPECT_LE(slow.received, received + 2) << "what the others free is theirs";
  slow.keeps = false;
  slow.kept.clear();
  ASSERT_TRUE(run([&] { return slow.received == 500; }));
  ASSERT_TRUE(run([&] { return hub->shared->dealer().missing() == 0; }));
}

TEST_F(SharedReceivesTest, WithoutAWordFromThePoolMemoryIsTriedAgainAfterAWhile) {
  EngineOptions options = small_options();
  options.shared_receives = least(options) + 8;
  make(options, 1, size_t{640} << 10);
  std::vector<Buffer> hoard;
  for (auto more = hub->pool->allocate_buffer(4096); more.ok();
       more = hub->pool->allocate_buffer(4096)) {
    hoard.push_back(*std::move(more));
  }
  hub->members[0]->keeps = true;
  send(0, 3, 3000);
  ASSERT_TRUE(run([&] { return hub->members[0]->received == 3; }));
  EXPECT_EQ(hub->shared->dealer().missing(), 3u);
  EXPECT_LE(hub->shared->next_retry(), hub->now + 10ms);
  hub->members[0]->kept.clear();
  hoard.clear();
  hub->now = hub->shared->next_retry();
  pump(2);
  EXPECT_EQ(hub->shared->dealer().missing(), 0u);
}

TEST_F(SharedReceivesTest, APeerThatEndsInTheMiddleLeavesAllEntriesAndTheOthersAlone) {
  EngineOptions options = small_options();
  options.shared_receives = 3 * least(options) + 24;
  make(options, 3);
  for (size_t i = 0; i < 3; ++i) send(i, 300, 3000);
  pump(10);
  peers[0]->engine->fail(error(Code::kUnavailable, "killed"));
  ASSERT_TRUE(run([&] { return hub->members[0]->engine->state() == Engine::State::kDead; }));
  ASSERT_TRUE(
      run([&] { return hub->members[1]->received == 300 && hub->members[2]->received == 300; }));
  EXPECT_FALSE(hub->members[0]->failure.ok());
  EXPECT_EQ(hub->shared->dealer().engines(), 2u);
  EXPECT_EQ(hub->shared->dealer().missing(), 0u);
  EXPECT_EQ(hub->shared->dealer().reserved(), 2 * reserved_receives(options));
}

TEST(SharedReceives, OfSixtyFourEnginesNeedAFractionOfTheMemory) {
  EngineOptions options;  // the defaults
  options.grants = options.write_requests = 4;
  options.grant_cancels = 1;
  const auto registered = [](const EngineOptions& with) {
    Hub of(with, size_t{128} << 20);
    for (int i = 0; i < 64; ++i) EXPECT_TRUE(of.add().ok());
    return of.pool->stats().live_bytes;
  };
  const size_t own = registered(options);
  options.shared_receives = 1;
  options.shared_receives = 64 * least(options) + 4 * options.recv_queue_depth;
  const size_t shared = registered(options);
  EXPECT_EQ(own, 64u * (47 * 8192 + 4096 + 64));
  EXPECT_LT(shared * 2, own) << shared << " and " << own << " bytes";
}

}  // namespace
}  // namespace be
