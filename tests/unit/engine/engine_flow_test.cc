// Credits, window, grants and memory: who waits, for what, and that it ends.
#include <algorithm>
#include <set>

#include "tests/unit/engine/engine_pair.h"

namespace be {
namespace {

class EngineFlow : public EnginePair {
 protected:
  // Pumps a alone: b does not take anything.
  void pump_a(int turns) {
    for (int i = 0; i < turns; ++i) a->pump();
  }
};

TEST_P(EngineFlow, RequestsStopAtThePeersCreditsAndRepliesGoOn) {
  EngineOptions options;
  options.recv_queue_depth = 8;
  make(options);
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(a->send_text(1, "request").ok());
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(a->send_text(2, "reply", 2, MessageClass::kReply).ok());
  }
  // b consumes, but never gets to replace a receive.
  for (int i = 0; i < 200; ++i) {
    a->pump();
    b->poll();
  }
  const uint32_t credits = initial_credits(with_receives(options, GetParam()));
  EXPECT_EQ(b->frames.size(), credits);
  const auto replies = std::count_if(b->frames.begin(), b->frames.end(),
                                     [](const auto& frame) { return frame.socket == 2; });
  EXPECT_GE(replies, credits / 4) << "a quarter is theirs";
  EXPECT_GT(a->engine->stats().credit_stalls, 0u);
  ASSERT_TRUE(run([&] { return b->frames.size() == 40; })) << "credits come back";
  ASSERT_TRUE(run([&] { return a->sent.size() == 40; }));
}

TEST_P(EngineFlow, CreditsRecoverOverAndOverWithTheSmallestQueues) {
  EngineOptions options;
  options.recv_queue_depth = 2;
  options.send_queue_depth = 2;
  options.grants = 2;
  options.write_requests = 2;
  options.grant_cancels = 1;
  make(options);
  for (int i = 0; i < 300; ++i) {
    ASSERT_TRUE(a->send_text(1 + static_cast<SocketId>(i % 3), pattern(1 + i * 37, 1)).ok());
    ASSERT_TRUE(b->send_text(1 + static_cast<SocketId>(i % 3), pattern(1 + i * 31, 1), 1,
                             MessageClass::kReply)
                    .ok());
  }
  ASSERT_TRUE(run([&] { return b->frames.size() == 300 && a->frames.size() == 300; }));
}

TEST_P(EngineFlow, TheWindowIsNeverExceededAndEverythingArrives) {
  EngineOptions options;
  options.send_window_bytes = 6000;
  options.fragment_bytes = 4096;
  make(options);  // check_invariants asserts the window after every event
  for (uint32_t i = 0; i < 40; ++i) {
    ASSERT_TRUE(a->send_text(i, pattern(1000 + 777 * i, i)).ok());
  }
  ASSERT_TRUE(run([&] { return b->frames.size() == 40; }));
  EXPECT_GT(a->engine->stats().window_stalls, 0u);
  for (const auto& frame : b->frames) {
    EXPECT_EQ(text_of(frame.payload), pattern(1000 + 777 * frame.socket, frame.socket));
  }
}

TEST_P(EngineFlow, ASmallMessageDoesNotWaitForTheWholeOfALargeOne) {
  EngineOptions options;
  options.fragment_bytes = 16384;
  make(options);
  ASSERT_TRUE(a->send_text(1, pattern(4u << 20, 1)).ok());
  // Until a is well within the large message.
  ASSERT_TRUE(run([&] { return b->engine->stats().open_grants == 1; }));
  pump(20);
  ASSERT_TRUE(b->frames.empty());
  ASSERT_TRUE(a->send_text(2, "small").ok());
  ASSERT_TRUE(run([&] { return !b->frames.empty(); }, 12)) << "at most a few fragments";
  EXPECT_EQ(text_of(b->frames[0].payload), "small");
  ASSERT_TRUE(run([&] { return b->frames.size() == 2; }));
}

TEST_P(EngineFlow, LargeMessagesOfManySocketsShareTheGrants) {
  EngineOptions options;
  options.grants = 3;
  options.write_requests = 2;
  options.grant_budget_bytes = 100000;
  make(options);
  for (uint32_t i = 0; i < 12; ++i) {
    ASSERT_TRUE(a->send_text(i, pattern(60000 + i, i)).ok());
  }
  ASSERT_TRUE(a->send_text(12, pattern(3u << 20, 12)).ok());  // beyond the budget: alone
  ASSERT_TRUE(run([&] { return b->frames.size() == 13; }));
  for (const auto& frame : b->frames) {
    EXPECT_EQ(text_of(frame.payload),
              pattern(frame.socket == 12 ? 3u << 20 : 60000 + frame.socket, frame.socket));
  }
  EXPECT_EQ(b->engine->stats().open_grants, 0u);
}

TEST_P(EngineFlow, AtTheCapReceivesAreNotReplacedUntilMemoryComesBack) {
  EngineOptions options;
  options.eager_bytes = 4096;
  make(options, options, size_t{64} << 20, 1u << 20);
  for (int i = 0; i < 1000; ++i) ASSERT_TRUE(a->send_text(1, pattern(4000, 1)).ok());
  pump(3000);  // b holds everything it gets
  const size_t held = b->frames.size();
  EXPECT_LT(held, 400u) << "the cap";
  EXPECT_GT(b->engine->stats().memory_stalls, 0u);
  EXPECT_EQ(b->failures + a->failures, 0);
  pump(3000);
  EXPECT_EQ(b->frames.size(), held) << "nothing more until something is freed";

  size_t total = 0;
  ASSERT_TRUE(run([&] {
    total += b->frames.size();
    b->frames.clear();  // freed: the pool tells
    return total == 1000;
  }));
}

TEST_P(EngineFlow, ALargeMessageWaitsForMemoryAndIsNotLost) {
  EngineOptions options;
  make(options, options, size_t{64} << 20, 1u << 20);
  std::vector<Buffer> hoard;  // the application of b has taken all memory
  for (auto more = b->pool->allocate_buffer(kTestBlock); more.ok();
       more = b->pool->allocate_buffer(kTestBlock)) {
    hoard.push_back(*std::move(more));
  }
  ASSERT_TRUE(a->send_text(1, pattern(200000, 1)).ok());
  pump(2000);
  EXPECT_TRUE(b->frames.empty());
  EXPECT_GT(b->engine->stats().memory_stalls, 0u);
  hoard.clear();
  ASSERT_TRUE(run([&] { return b->frames.size() == 1; }));
  EXPECT_EQ(text_of(b->frames[0].payload), pattern(200000, 1));
}

TEST_P(EngineFlow, WithoutAWordFromThePoolMemoryIsTriedAgainAtTheNextTick) {
  EngineOptions options;
  make(options, options, size_t{64} << 20, 1u << 20);
  std::vector<Buffer> hoard;
  for (auto more = b->pool->allocate_buffer(kTestBlock); more.ok();
       more = b->pool->allocate_buffer(kTestBlock)) {
    hoard.push_back(*std::move(more));
  }
  ASSERT_TRUE(a->send_text(1, pattern(200000, 1)).ok());
  pump(200);
  const uint64_t stalls = b->engine->stats().memory_stalls;
  const Time retry = b->engine->next_tick();
  EXPECT_LE(retry, b->now + 10ms);
  b->now = retry;
  pump(10);
  EXPECT_GT(b->engine->stats().memory_stalls, stalls);
  hoard.clear();
  ASSERT_TRUE(run([&] { return b->frames.size() == 1; }));
}

// b's memory is full of what it wants to write to a, and a has no credit left at b: the grants
// that a gives spend none, so b can write, and its memory comes back.
TEST_P(EngineFlow, AnEngineWhoseMemoryIsFullOfLargeMessagesCanStillWriteThem) {
  EngineOptions options;
  options.recv_queue_depth = 8;
  make(options, options, size_t{64} << 20, 2u << 20);
  for (int i = 0; i < 40; ++i) ASSERT_TRUE(a->send_text(1, pattern(4000, 1)).ok());
  for (int i = 0; i < 40; ++i) {
    ASSERT_TRUE(a->send_text(2, pattern(4000, 2), 1, MessageClass::kReply).ok());
  }
  std::vector<Buffer> large;
  for (auto more = b->pool->allocate_buffer(20000); more.ok();
       more = b->pool->allocate_buffer(20000)) {
    large.push_back(*std::move(more));
  }
  const size_t count = large.size();
  ASSERT_GT(count, 10u);
  pump(1000);  // a's credits at b are gone, b cannot replace a receive
  EXPECT_GT(a->engine->stats().queued_messages, 0u);
  for (Buffer& buffer : large) ASSERT_TRUE(b->send(3, Message(std::move(buffer))).ok());
  ASSERT_TRUE(run([&] { return a->frames.size() == count && b->frames.size() == 80; }));
}

// Both have filled their memory with messages for the other: somebody must give way.
TEST_P(EngineFlow, WaitingForMemoryEndsWithARefusalAfterTheTimeout) {
  EngineOptions options;
  make(options, options, 2u << 20, 2u << 20);
  uint64_t sent = 0;
  for (EngineEnd* end : {a.get(), b.get()}) {
    sent = 0;
    for (auto more = end->pool->allocate_buffer(200000); more.ok();
         more = end->pool->allocate_buffer(200000)) {
      ASSERT_TRUE(end->send(1, Message(*std::move(more)), ++sent).ok());
    }
  }
  pump(1000);
  EXPECT_TRUE(a->sent.empty());
  EXPECT_TRUE(b->sent.empty());
  for (int i = 0; i < 600; ++i) {  // six seconds
    a->now += 10ms;
    b->now += 10ms;
    pump(2);
  }
  ASSERT_TRUE(run([&] { return a->sent.size() == sent && b->sent.size() == sent; }));
  const auto refused = [](const EngineEnd& end) {
    return std::count_if(end.sent.begin(), end.sent.end(), [](const auto& one) {
      return one.status.code() == Code::kResourceExhausted;
    });
  };
  EXPECT_GT(refused(*a) + refused(*b), 0);
  EXPECT_LT(refused(*a) + refused(*b), static_cast<int64_t>(2 * sent)) << "then there is memory";
  EXPECT_EQ(a->failures + b->failures, 0);
}

TEST_P(EngineFlow, AWriteRequestThatWaitsIsRefusedWhenItsSocketIsClosed) {
  EngineOptions options;
  options.grants = 2;  // one for requests
  make(options);
  ASSERT_TRUE(a->send_text(1, pattern(4u << 20, 1), 1).ok());
  ASSERT_TRUE(a->send_text(2, pattern(50000, 2), 2).ok());
  ASSERT_TRUE(run([&] { return b->engine->stats().open_grants == 1; }));
  pump(4);
  b->engine->close_socket(2, error(Code::kClosed, "not here"));
  ASSERT_TRUE(run([&] { return a->sent.size() == 2; }));
  EXPECT_EQ(a->sent[0].cookie, 2u) << "before a grant was free for it";
  EXPECT_EQ(a->sent[0].status.code(), Code::kClosed);
  EXPECT_TRUE(a->sent[1].status.ok());
  EXPECT_EQ(b->frames.size(), 1u);
}

TEST_P(EngineFlow, AMessageThatCanNeverFitIsRefusedByName) {
  EngineOptions options;
  make(options, options, size_t{64} << 20, 1u << 20);
  ASSERT_TRUE(a->send_text(1, pattern(2u << 20, 1), 10).ok());
  ASSERT_TRUE(a->send_text(1, "next", 11).ok());
  ASSERT_TRUE(run([&] { return a->sent.size() == 2; }));
  EXPECT_EQ(a->sent[0].cookie, 10u);
  EXPECT_EQ(a->sent[0].status.code(), Code::kResourceExhausted);
  EXPECT_TRUE(a->sent[1].status.ok());
  ASSERT_TRUE(run([&] { return b->frames.size() == 1; }));
  EXPECT_EQ(text_of(b->frames[0].payload), "next");
}

TEST_P(EngineFlow, RepliesGetThroughWhileRequestsHoldAllTheirGrants) {
  EngineOptions options;
  options.grants = 4;
  make(options);
  // Requests whose writers never come: their grants stay open.
  a->on_sent_hook = nullptr;
  for (uint32_t i = 0; i < 8; ++i) ASSERT_TRUE(a->send_text(i, pattern(50000, i)).ok());
  // b answers, a does not write: a is polled (so that it takes nothing) but makes no progress.
  a->engine->progress(a->now);
  for (int i = 0; i < 50; ++i) b->pump();
  EXPECT_EQ(b->engine->stats().open_grants, 3u) << "one of four is for replies";
  ASSERT_TRUE(a->send_text(100, pattern(50000, 100), 1, MessageClass::kReply).ok());
  ASSERT_TRUE(run([&] {
    return std::any_of(b->frames.begin(), b->frames.end(),
                       [](const auto& frame) { return frame.socket == 100; });
  }));
  ASSERT_TRUE(run([&] { return b->frames.size() == 9; }));
}

TEST_P(EngineFlow, ClosingASocketEndsWhatHasNotBegun) {
  make();
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(a->send_text(1, pattern(100000, 1), 1).ok());
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(a->send_text(1, "small", 2).ok());
  ASSERT_TRUE(a->send_text(2, "other", 3).ok());
  a->engine->close_socket(1, error(Code::kClosed, "no longer wanted"));
  EXPECT_EQ(a->sent.size(), 10u);
  for (const auto& one : a->sent) EXPECT_EQ(one.status.code(), Code::kClosed);
  ASSERT_TRUE(run([&] { return b->frames.size() == 1; }));
  EXPECT_EQ(b->frames[0].socket, 2u);
}

TEST_P(EngineFlow, AGrantThatItsWriterNoLongerWantsIsGivenBack) {
  make();
  ASSERT_TRUE(a->send_text(1, pattern(100000, 1), 1).ok());
  ASSERT_TRUE(a->send_text(1, pattern(100000, 2), 2).ok());
  a->engine->progress(a->now);  // WriteRequests are out
  a->engine->close_socket(1, error(Code::kClosed, "no longer wanted"));
  ASSERT_EQ(a->sent.size(), 2u);
  for (int i = 0; i < 5; ++i) b->pump();
  EXPECT_EQ(b->engine->stats().open_grants, 2u);
  ASSERT_TRUE(run([&] { return b->engine->stats().open_grants == 0; }));
  EXPECT_TRUE(b->frames.empty());
  ASSERT_TRUE(a->send_text(1, pattern(100000, 3), 3).ok());
  ASSERT_TRUE(run([&] { return b->frames.size() == 1; }));
  EXPECT_EQ(text_of(b->frames[0].payload), pattern(100000, 3));
}

TEST_P(EngineFlow, WhatHasBegunRunsToItsEndAfterClose) {
  EngineOptions options;
  options.fragment_bytes = 4096;
  make(options);
  ASSERT_TRUE(a->send_text(1, pattern(1u << 20, 1), 1).ok());
  ASSERT_TRUE(a->send_text(1, pattern(1u << 20, 2), 2).ok());
  ASSERT_TRUE(run([&] { return b->engine->stats().open_grants == 2; }));
  pump(10);
  a->engine->close_socket(1, error(Code::kClosed, "no longer wanted"));
  ASSERT_EQ(a->sent.size(), 1u);
  EXPECT_EQ(a->sent[0].cookie, 2u);
  ASSERT_TRUE(run([&] { return b->frames.size() == 1 && a->sent.size() == 2; }));
  EXPECT_EQ(text_of(b->frames[0].payload), pattern(1u << 20, 1));
  ASSERT_TRUE(run([&] { return b->engine->stats().open_grants == 0; }));
}

TEST_P(EngineFlow, TheReceiversCloseCancelsItsGrantsAndRefusesTheNext) {
  EngineOptions options;
  options.fragment_bytes = 4096;
  options.grant_cancels = 1;  // one at a time
  make(options);
  for (uint64_t i = 0; i < 3; ++i) ASSERT_TRUE(a->send_text(1, pattern(4u << 20, 1), i).ok());
  ASSERT_TRUE(a->send_text(2, pattern(100000, 2), 10).ok());
  ASSERT_TRUE(run([&] { return b->engine->stats().open_grants >= 3; }));
  pump(4);
  b->engine->close_socket(1, error(Code::kClosed, "not here"));
  ASSERT_TRUE(run([&] { return a->sent.size() == 4; }));
  for (const auto& one : a->sent) {
    EXPECT_EQ(one.status.code(), one.cookie == 10 ? Code::kOk : Code::kClosed);
  }
  EXPECT_LT(a->engine->stats().bytes_sent, 4u << 20) << "none was written whole";
  ASSERT_TRUE(run([&] { return b->engine->stats().open_grants == 0 && b->frames.size() == 1; }));
  EXPECT_EQ(b->frames[0].socket, 2u);
  // And again: a cancel is answered when the peer is known to have taken it, so the next can go.
  for (int round = 0; round < 5; ++round) {
    a->sent.clear();
    b->frames.clear();
    ASSERT_TRUE(a->send_text(1, pattern(4u << 20, 1), 1).ok());
    ASSERT_TRUE(run([&] { return b->engine->stats().open_grants == 1; }));
    b->engine->close_socket(1, error(Code::kClosed, "not here"));
    ASSERT_TRUE(run([&] { return a->sent.size() == 1 && b->engine->stats().open_grants == 0; }));
    EXPECT_EQ(a->sent[0].status.code(), Code::kClosed) << round;
    EXPECT_TRUE(b->frames.empty());
  }
  EXPECT_EQ(a->failures + b->failures, 0);
}

INSTANTIATE_TEST_SUITE_P(With, EngineFlow, testing::Values(Receives::kOwn, Receives::kShared),
                         receives_name);

}  // namespace
}  // namespace be
