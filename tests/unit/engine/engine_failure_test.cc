// Engines that end: everything is told once, nothing is lost or leaked.
#include <map>

#include "tests/unit/engine/engine_pair.h"

namespace be {
namespace {

class EngineFailure : public EnginePair {
 protected:
  void expect_each_once(const EngineEnd& end, size_t messages) {
    std::map<uint64_t, int> told;
    for (const auto& one : end.sent) ++told[one.cookie];
    EXPECT_EQ(end.sent.size(), messages);
    EXPECT_EQ(told.size(), messages);
  }
};

TEST_P(EngineFailure, FailCompletesQueuedAndInFlightMessagesExactlyOnce) {
  EngineOptions options;
  options.fragment_bytes = 4096;
  make(options);
  uint64_t cookie = 0;
  for (uint32_t i = 0; i < 10; ++i) {
    ASSERT_TRUE(a->send_text(i, pattern(300000, i), cookie++).ok());
    ASSERT_TRUE(a->send_text(i, "behind it", cookie++).ok());
    ASSERT_TRUE(a->send_text(100 + i, pattern(3000, i), cookie++).ok());
  }
  pump(10);  // some are sent, some begun, some not
  a->engine->fail(error(Code::kUnavailable, "cable cut"));
  EXPECT_EQ(a->failures, 1);
  EXPECT_EQ(a->failure.message(), "cable cut");
  expect_each_once(*a, cookie);
  EXPECT_GT(a->sent.size(), 0u);
  EXPECT_EQ(a->sent.back().status.message(), "cable cut");
  a->engine->fail(error(Code::kInternal, "a second reason"));
  EXPECT_EQ(a->failures, 1);
  EXPECT_EQ(a->failure.message(), "cable cut");
}

TEST_P(EngineFailure, PerSocketTheOlderMessagesAreToldOfFirst) {
  EngineOptions options;
  options.fragment_bytes = 4096;
  make(options);
  for (uint64_t i = 0; i < 60; ++i) {
    ASSERT_TRUE(a->send_text(i % 3, pattern(i % 2 ? 20000 : 100, 1), i).ok());
  }
  pump(6);
  a->engine->fail(error(Code::kUnavailable, "cable cut"));
  std::map<SocketId, uint64_t> last;
  for (const auto& one : a->sent) {
    EXPECT_TRUE(!last.contains(one.socket) || one.cookie > last[one.socket]);
    last[one.socket] = one.cookie;
  }
  expect_each_once(*a, 60);
}

TEST_P(EngineFailure, AFailedEngineRefusesMessagesAndLeavesThemUntouched) {
  make();
  a->engine->fail(error(Code::kUnavailable, "cable cut"));
  Message message(a->buffer("kept"));
  const Status status = a->engine->send(1, FrameKind::kMessage, MessageClass::kRequest, message, 1);
  EXPECT_EQ(status.code(), Code::kClosed);
  EXPECT_NE(status.message().find("cable cut"), std::string::npos);
  EXPECT_EQ(text_of(message.parts[0]), "kept");
}

TEST_P(EngineFailure, ThePeerHearsOfItAndItsMessagesEndToo) {
  make();
  for (uint64_t i = 0; i < 20; ++i) ASSERT_TRUE(b->send_text(1, pattern(50000, 1), i).ok());
  pump(3);
  a->engine->fail(error(Code::kUnavailable, "cable cut"));
  ASSERT_TRUE(run([&] { return b->failures == 1; }));
  expect_each_once(*b, 20);
}

TEST_P(EngineFailure, FailFromWithinOnFrameAndOnSentIsSafe) {
  make();
  b->on_frame_hook = [&](FrameKind, SocketId, Buffer&) {
    b->engine->fail(error(Code::kProtocol, "the layer above does not like it"));
  };
  a->on_sent_hook = [&](SocketId, uint64_t, const Status&) {
    a->engine->fail(error(Code::kInternal, "from on_sent"));
  };
  for (uint64_t i = 0; i < 10; ++i) ASSERT_TRUE(a->send_text(1, "x", i).ok());
  ASSERT_TRUE(run([&] { return a->failures == 1 && b->failures == 1; }));
  expect_each_once(*a, 10);
}

TEST_P(EngineFailure, SendingAndClosingFromWithinOnSentIsSafe) {
  make();
  int more = 5;
  a->on_sent_hook = [&](SocketId socket, uint64_t cookie, const Status&) {
    if (cookie != 1) return;
    a->engine->close_socket(3, error(Code::kClosed, "closed"));
    if (more-- > 0) {
      ASSERT_TRUE(a->send_text(socket, "again", 1).ok());
    }
  };
  ASSERT_TRUE(a->send_text(1, "first", 1).ok());
  ASSERT_TRUE(a->send_text(3, pattern(100000, 1), 3).ok());
  ASSERT_TRUE(run([&] { return more < 0 && a->sent.size() == 7; }));
}

TEST_P(EngineFailure, MemoryThatMayBeTouchedIsKeptUntilTheEngineIsDead) {
  EngineOptions options;
  options.fragment_bytes = 4096;
  make(options);
  ASSERT_TRUE(a->send_text(1, pattern(300000, 1), 1).ok());
  ASSERT_TRUE(run([&] { return b->engine->stats().open_grants == 1; }));
  pump(4);
  const size_t live = a->pool->stats().live_bytes;
  const size_t granted = b->pool->stats().live_bytes;
  a->engine->fail(error(Code::kUnavailable, "cable cut"));
  b->engine->fail(error(Code::kUnavailable, "cable cut"));
  ASSERT_EQ(a->sent.size(), 1u) << "told at once";
  EXPECT_EQ(a->pool->stats().live_bytes, live) << "the message is still in its Buffer";
  EXPECT_EQ(b->pool->stats().live_bytes, granted) << "so is the grant";
  ASSERT_TRUE(run([&] {
    return a->engine->state() == Engine::State::kDead && b->engine->state() == Engine::State::kDead;
  }));
  EXPECT_EQ(a->pool->stats().live_bytes, 0u);
  EXPECT_EQ(b->pool->stats().live_bytes, 0u);
  EXPECT_EQ(a->engine->qp(), nullptr);
}

TEST_P(EngineFailure, ASilentPeerIsDeadAfterTheTimeoutHoweverMuchWeSend) {
  make();
  for (int tick = 0; tick < 4; ++tick) {
    a->now = a->engine->next_tick();
    a->pump();
    ASSERT_TRUE(a->send_text(1, "are you there", 1).ok());
    a->pump();
  }
  EXPECT_EQ(a->failures, 0);
  a->now = a->engine->next_tick();
  a->pump();
  ASSERT_EQ(a->failures, 1);
  EXPECT_EQ(a->failure.code(), Code::kUnavailable);
  EXPECT_NE(a->failure.message().find("no sign of life"), std::string::npos);
}

TEST_P(EngineFailure, EnginesThatTickKeepEachOtherAlive) {
  make();
  for (int tick = 0; tick < 50; ++tick) {
    a->now += 1s;
    b->now += 1s;
    pump(10);
  }
  EXPECT_EQ(a->failures + b->failures, 0);
}

TEST_P(EngineFailure, AnEngineThatWasNeverConnectedIsDestroyedAtOnce) {
  EngineEnd alone;
  EXPECT_EQ(alone.engine->state(), Engine::State::kInit);
  EXPECT_EQ(alone.engine->completions_needed(), 32u + 32 + 16 + 2 + 16 + 16 + 4);
}

TEST_P(EngineFailure, FailBeforeConnectEndsInDeadToo) {
  EngineEnd alone;
  ASSERT_TRUE(alone.send_text(1, "early", 5).ok());
  alone.engine->fail(error(Code::kUnavailable, "handshake failed"));
  ASSERT_EQ(alone.sent.size(), 1u);
  EXPECT_EQ(alone.failures, 1);
}

TEST_P(EngineFailure, CreateAtTheCapLeavesNothingBehind) {
  Station station(size_t{128} << 10);
  struct Deaf final : EngineUser {
    virtual ~Deaf() = default;
    void on_frame(FrameKind, SocketId, Buffer) override {}
    void on_sent(SocketId, uint64_t, const Status&) override {}
    void on_engine_failed(const Status&) override {}
  } deaf;
  Engine::Resources resources;
  resources.device = station.device.get();
  resources.pool = station.pool.get();
  resources.cq = station.cq;
  resources.peer = "10.0.0.1:9000";
  const auto made = Engine::create(resources, {}, &deaf);
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.status().code(), Code::kResourceExhausted);
  EXPECT_NE(made.status().message().find("10.0.0.1:9000"), std::string::npos);
  EXPECT_EQ(station.pool->stats().allocations, 0u);
}

TEST_P(EngineFailure, ImpossibleOptionsAreNamed) {
  const auto reason = [](auto change) {
    EngineOptions options;
    change(options);
    const Status status = options.check();
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    return status.message();
  };
  EXPECT_NE(reason([](auto& o) { o.send_queue_depth = 0; }).find("engine.send_queue_depth"),
            std::string::npos);
  EXPECT_NE(reason([](auto& o) { o.recv_queue_depth = 1; }).find("engine.recv_queue_depth"),
            std::string::npos);
  EXPECT_NE(reason([](auto& o) {
              o.fragment_bytes = 8192;
              o.send_window_bytes = 4096;
            }).find("engine.send_window_bytes"),
            std::string::npos);
  EXPECT_TRUE(EngineOptions().check().ok());
}

TEST_P(EngineFailure, ImpossibleTermsOfThePeerAreNamed) {
  EngineEnd end;
  const EngineTerms good = end.engine->local_terms();
  EXPECT_TRUE(good.check().ok());
  const auto reason = [&good](auto change) {
    EngineTerms terms = good;
    change(terms);
    const Status status = terms.check();
    EXPECT_EQ(status.code(), Code::kProtocol);
    return status.message();
  };
  EXPECT_NE(reason([](auto& t) { t.recv_queue_depth = UINT32_MAX; }).find("recv_queue_depth"),
            std::string::npos);
  EXPECT_NE(reason([](auto& t) { t.eager_bytes = 1; }).find("eager_bytes"), std::string::npos);
  EXPECT_NE(reason([](auto& t) { t.keepalive_address = 3; }).find("keepalive_address"),
            std::string::npos);
  EXPECT_NE(reason([](auto& t) { t.keepalive_interval = 0ns; }).find("keepalive_interval"),
            std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(With, EngineFailure, testing::Values(Receives::kOwn, Receives::kShared),
                         receives_name);

}  // namespace
}  // namespace be
