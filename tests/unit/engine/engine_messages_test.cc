// Messages of every size arrive once, whole and in order.
#include <map>
#include <random>

#include "tests/unit/engine/engine_pair.h"

namespace be {
namespace {

using EngineMessages = EnginePair;

TEST_P(EngineMessages, ASmallMessageArrivesAndItsSenderIsTold) {
  make();
  ASSERT_TRUE(a->send_text(7, "hello", 42).ok());
  ASSERT_TRUE(run([&] { return b->frames.size() == 1 && a->sent.size() == 1; }));
  EXPECT_EQ(text_of(b->frames[0].payload), "hello");
  EXPECT_EQ(b->frames[0].socket, 7u);
  EXPECT_EQ(b->frames[0].kind, FrameKind::kMessage);
  EXPECT_EQ(a->sent[0].cookie, 42u);
  EXPECT_TRUE(a->sent[0].status.ok());
}

TEST_P(EngineMessages, EveryKindOfFrameAndAnEmptyMessageArrive) {
  make();
  for (int kind = 1; kind <= 5; ++kind) {
    Message message;
    ASSERT_TRUE(
        a->send(1, std::move(message), 1, MessageClass::kReply, static_cast<FrameKind>(kind)).ok());
  }
  ASSERT_TRUE(run([&] { return b->frames.size() == 5; }));
  for (int kind = 1; kind <= 5; ++kind) {
    EXPECT_EQ(static_cast<int>(b->frames[static_cast<size_t>(kind - 1)].kind), kind);
    EXPECT_TRUE(b->frames[static_cast<size_t>(kind - 1)].payload.empty());
  }
}

// Around every limit: inline, copy-break, eager, one and several fragments.
TEST_P(EngineMessages, EverySizeArrivesWholeInBothDirections) {
  EngineOptions options;
  options.fragment_bytes = 8192;
  make(options);
  const size_t sizes[] = {1,    31,   184,  200,  255,   256,   257,   1000,  4079,   4080,    4081,
                          4096, 8160, 8176, 8177, 16368, 16369, 65536, 99999, 300000, 5u << 20};
  uint32_t seed = 1;
  for (const size_t size : sizes) {
    const std::string there = pattern(size, seed++);
    const std::string back = pattern(size, seed++);
    a->frames.clear();
    b->frames.clear();
    ASSERT_TRUE(a->send_text(1, there).ok());
    ASSERT_TRUE(b->send_text(1, back, 1, MessageClass::kReply).ok());
    ASSERT_TRUE(run([&] { return a->frames.size() == 1 && b->frames.size() == 1; })) << size;
    EXPECT_EQ(text_of(b->frames[0].payload), there) << size;
    EXPECT_EQ(text_of(a->frames[0].payload), back) << size;
  }
}

TEST_P(EngineMessages, AGatherListArrivesAsOneBuffer) {
  EngineOptions options;
  options.fragment_bytes = 1024;  // many part boundaries within and between fragments
  make(options);
  for (const size_t unit : {10u, 60u, 900u, 1024u, 5000u}) {
    Message message;
    std::string expected = "header of " + std::to_string(unit);
    message.set_header(expected.data(), expected.size());
    for (uint32_t part = 0; part < Message::kMaxParts; ++part) {
      const std::string bytes = pattern(unit * (part + 1) - part, part);
      message.append(a->buffer(bytes));
      expected += bytes;
    }
    b->frames.clear();
    ASSERT_TRUE(a->send(3, std::move(message)).ok());
    ASSERT_TRUE(run([&] { return b->frames.size() == 1; })) << unit;
    EXPECT_EQ(text_of(b->frames[0].payload), expected) << unit;
  }
}

TEST_P(EngineMessages, SharedBuffersCanBeSentManyTimes) {
  make();
  Buffer original = a->buffer(pattern(20000, 9));
  for (uint32_t i = 0; i < 3; ++i) {
    ASSERT_TRUE(a->send(1, Message(original.share(i * 5000, 10000))).ok());
  }
  original.reset();
  ASSERT_TRUE(run([&] { return b->frames.size() == 3; }));
  for (uint32_t i = 0; i < 3; ++i) {
    EXPECT_EQ(text_of(b->frames[i].payload), pattern(20000, 9).substr(i * 5000, 10000));
  }
}

TEST_P(EngineMessages, WhatIsSentBeforeConnectWaitsForIt) {
  a = std::make_unique<EngineEnd>();
  b = std::make_unique<EngineEnd>();
  a->help = [this] { b->pump(); };
  ASSERT_TRUE(a->send_text(1, "early").ok());
  ASSERT_TRUE(a->send_text(1, pattern(50000, 1)).ok());
  start_connecting(*a, *b);
  ASSERT_TRUE(run([&] { return b->frames.size() == 2; }));
  EXPECT_EQ(text_of(b->frames[0].payload), "early");
  EXPECT_EQ(text_of(b->frames[1].payload), pattern(50000, 1));
}

TEST_P(EngineMessages, TheSmallerEagerLimitOfBothEndsHolds) {
  EngineOptions large;
  large.eager_bytes = 16384;
  EngineOptions small;
  small.eager_bytes = 512;
  make(large, small, size_t{64} << 20, size_t{64} << 20);
  ASSERT_TRUE(a->send_text(1, pattern(497, 1)).ok());  // one byte too many for a SEND
  ASSERT_TRUE(a->send_text(1, pattern(496, 2)).ok());
  ASSERT_TRUE(run([&] { return b->frames.size() == 2; }));
  EXPECT_EQ(text_of(b->frames[0].payload), pattern(497, 1));
  EXPECT_EQ(text_of(b->frames[1].payload), pattern(496, 2));
}

TEST_P(EngineMessages, WhatWasSentBeforeConnectObeysThePeersLimits) {
  EngineOptions small;
  small.eager_bytes = 512;
  small.max_message_bytes = 10000;
  a = std::make_unique<EngineEnd>();
  b = std::make_unique<EngineEnd>(small);
  a->help = [this] { b->pump(); };
  ASSERT_TRUE(a->send_text(1, pattern(3000, 1), 1).ok());
  ASSERT_TRUE(a->send_text(1, pattern(20000, 2), 2).ok());
  ASSERT_TRUE(a->send_text(1, pattern(3000, 3), 3).ok());
  start_connecting(*a, *b);
  ASSERT_TRUE(run([&] { return a->sent.size() == 3; }));
  EXPECT_EQ(a->sent[0].cookie, 2u);
  EXPECT_EQ(a->sent[0].status.code(), Code::kInvalidArgument);
  ASSERT_EQ(b->frames.size(), 2u);
  EXPECT_EQ(text_of(b->frames[0].payload), pattern(3000, 1));
  EXPECT_EQ(text_of(b->frames[1].payload), pattern(3000, 3));
}

TEST_P(EngineMessages, AMessageThatThePeerDoesNotTakeIsRefusedUntouched) {
  EngineOptions options;
  options.max_message_bytes = 100000;
  make(options);
  Message message(a->buffer(pattern(100001, 1)));
  const Status status = a->engine->send(1, FrameKind::kMessage, MessageClass::kRequest, message, 1);
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_EQ(message.bytes(), 100001u);
  EXPECT_TRUE(a->send_text(1, pattern(100000, 1)).ok());
  EXPECT_TRUE(run([&] { return b->frames.size() == 1; }));
}

TEST_P(EngineMessages, AFullQueueRefusesAndOpensAgain) {
  make();
  Status status;
  int accepted = 0;
  while ((status = a->send_text(1, "x", 1)).ok()) ++accepted;
  EXPECT_EQ(status.code(), Code::kResourceExhausted);
  EXPECT_EQ(a->send_text(2, "another socket").ok(), true);
  ASSERT_TRUE(run([&] {
    b->frames.clear();
    return a->sent.size() == static_cast<size_t>(accepted) + 1;
  }));
  EXPECT_TRUE(a->send_text(1, "x").ok());
}

// Random sizes over many sockets, both ways at once, replies from within on_frame.
TEST_P(EngineMessages, ManySocketsKeepTheirOrderAndLoseNothing) {
  for (const uint32_t window : {0u, 16384u}) {
    EngineOptions options;
    options.fragment_bytes = 4096;
    options.send_window_bytes = window;
    options.send_queue_depth = 16;
    options.recv_queue_depth = 8;
    options.grants = 4;
    options.write_requests = 3;
    make(options);
    constexpr int kMessages = 1500;
    constexpr uint32_t kSockets = 23;
    std::mt19937 random(window + 1);
    const auto random_size = [&random]() -> size_t {
      switch (random() % 4) {
        case 0:
          return 8 + random() % 200;
        case 1:
          return 8 + random() % 4500;
        case 2:
          return 8 + random() % 40000;
        default:
          return 8;
      }
    };
    std::map<SocketId, uint32_t> sent_on, seen_at_b, replied_at_a;
    int echoes = 0;
    // b sends every message back, on the same socket.
    b->on_frame_hook = [&](FrameKind, SocketId socket, Buffer& payload) {
      uint32_t sequence = 0;
      std::memcpy(&sequence, payload.data(), 4);
      ASSERT_EQ(sequence, seen_at_b[socket]++);
      ASSERT_EQ(text_of(payload).substr(8), pattern(payload.size() - 8, socket * 7919 + sequence));
      ASSERT_TRUE(b->send(socket, Message(std::move(payload)), 1, MessageClass::kReply).ok());
    };
    a->on_frame_hook = [&](FrameKind, SocketId socket, Buffer& payload) {
      uint32_t sequence = 0;
      std::memcpy(&sequence, payload.data(), 4);
      ASSERT_EQ(sequence, replied_at_a[socket]++);
      ASSERT_EQ(text_of(payload).substr(8), pattern(payload.size() - 8, socket * 7919 + sequence));
      ++echoes;
    };
    int sent = 0;
    ASSERT_TRUE(run(
        [&] {
          for (int burst = random() % 5; burst > 0 && sent < kMessages; --burst, ++sent) {
            const SocketId socket = 1 + 2 * (random() % kSockets);
            const uint32_t sequence = sent_on[socket]++;
            std::string text(8, '\0');
            std::memcpy(text.data(), &sequence, 4);
            text += pattern(random_size() - 8, socket * 7919 + sequence);
            EXPECT_TRUE(a->send_text(socket, text, static_cast<uint64_t>(sent)).ok());
          }
          return echoes == kMessages && a->sent.size() == kMessages && b->sent.size() == kMessages;
        },
        2000000));
    std::map<uint64_t, int> told;
    for (const auto& one : a->sent) {
      EXPECT_TRUE(one.status.ok());
      ++told[one.cookie];
    }
    EXPECT_EQ(told.size(), static_cast<size_t>(kMessages)) << "each cookie exactly once";
    TearDown();
  }
}

// Found by `byteexpress sim` (seed 11): too long for the peer's receives, yet short enough for our
// inline size, so that nobody had looked up its keys.
TEST_P(EngineMessages, MessageBetweenThePeersEagerBytesAndOurInlineBytesArrives) {
  EngineOptions small;
  small.eager_bytes = 128;
  make(EngineOptions{}, small, size_t{64} << 20, size_t{64} << 20);
  const std::string text = pattern(150, 1);
  ASSERT_TRUE(a->send_text(1, text).ok());
  ASSERT_TRUE(run([this] { return b->frames.size() == 1 && a->sent.size() == 1; }));
  EXPECT_EQ(text_of(b->frames[0].payload), text);
  EXPECT_TRUE(a->sent[0].status.ok());
}

INSTANTIATE_TEST_SUITE_P(With, EngineMessages, testing::Values(Receives::kOwn, Receives::kShared),
                         receives_name);

}  // namespace
}  // namespace be
