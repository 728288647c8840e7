// softnic as slow as a NIC. Slow enough here for any machine: no test is about how late a poll is.
#include "be/softnic/pacing.h"

#include <chrono>
#include <cstring>
#include <vector>

#include "tests/unit/softnic/fixture.h"

namespace be {
namespace {

using Clock = softnic::Link::Clock;

constexpr auto kMoment = std::chrono::milliseconds(30);
// 4 KiB take 32.8 ms, 8 KiB 65.5 ms.
constexpr uint64_t kSlow = 1'000'000;

TEST(SoftnicLink, CarriesOneRequestAtATimeAndGoesOnFromWhereItWas) {
  softnic::Link link(25'000'000'000);
  const Clock::time_point start{std::chrono::seconds(1)};
  EXPECT_EQ(link.time_of(3125), std::chrono::microseconds(1));
  EXPECT_EQ(link.time_of(1), std::chrono::nanoseconds(1));  // never for nothing
  EXPECT_EQ(link.take(3125, start), start + std::chrono::microseconds(1));
  EXPECT_EQ(link.take(3125, start), start + std::chrono::microseconds(2));
  const auto later = start + std::chrono::microseconds(10);
  EXPECT_EQ(link.take(6250, later), later + std::chrono::microseconds(2));
}

TEST(SoftnicLink, TheLongestMessageOnTheSlowestLinkFitsItsTime) {
  softnic::Link link(kMinLinkRate);
  EXPECT_EQ(link.time_of(1u << 31), std::chrono::nanoseconds(17'179'869'184'000));
}

class SoftnicPacing : public testing::Test {
 protected:
  void make(const SoftnicOptions& options) {
    device_ = open_device(options);
    a = std::make_unique<End>(device_.get());
    b = std::make_unique<End>();
    connect(*a, *b);
  }
  void TearDown() override {
    disconnect(*a, *b);
    a.reset();
  }

  // Waits, asleep, for the armed queue's event.
  static void sleep_until_event(End& end) {
    ASSERT_EQ(ibv_req_notify_cq(end.cq, 0), 0);
    std::vector<DeviceEvent> events;
    while (events.empty()) {
      ASSERT_TRUE(end.readable(5000));
      events = end.events();
    }
    EXPECT_EQ(events[0].kind, DeviceEvent::Kind::kCompletion);
  }

  std::unique_ptr<Device> device_;
  std::unique_ptr<End> a;
  std::unique_ptr<End> b;
};

TEST_F(SoftnicPacing, AMessageArrivesWhenItsBytesHaveHadTheirTimeAndItsSenderMayHaveSlept) {
  make({.link_bits_per_second = kSlow});
  ASSERT_EQ(b->post_recv(0, 4096, 7), 0);
  std::memset(a->memory.data(), 0x5a, 4096);
  const auto start = Clock::now();
  ASSERT_EQ(a->post_send(0, 4096, 1), 0);
  EXPECT_TRUE(a->poll().empty());
  EXPECT_TRUE(b->poll().empty());
  while (b->poll().empty()) {
    sleep_until_event(*a);
    a->poll();
  }
  EXPECT_GE(Clock::now() - start, kMoment);
  EXPECT_EQ(b->memory.data()[4095], 0x5a);
  b->poll();
  EXPECT_EQ(a->poll().size(), 1u);
}

TEST_F(SoftnicPacing, ASleepingReceiverIsWokenByWhatLeavesLater) {
  make({.link_bits_per_second = kSlow});
  ASSERT_EQ(b->post_recv(0, 4096), 0);
  ASSERT_EQ(a->post_send(0, 4096), 0);
  ASSERT_EQ(ibv_req_notify_cq(b->cq, 0), 0);
  EXPECT_FALSE(b->readable());
  sleep_until_event(*a);
  a->poll();
  ASSERT_TRUE(b->readable());
  EXPECT_EQ(b->events().size(), 1u);
  EXPECT_EQ(b->poll().size(), 1u);
}

TEST_F(SoftnicPacing, WhatIsPostedInlineMayBeOverwrittenWhileItWaits) {
  make({.link_bits_per_second = kSlow});
  ASSERT_EQ(b->post_recv(0, 4096), 0);
  ASSERT_EQ(b->post_recv(0, 64), 0);
  ASSERT_EQ(a->post_send(0, 4096), 0);
  std::memset(a->memory.data(), 1, 16);
  ASSERT_EQ(a->post_send(0, 16, 2, IBV_SEND_SIGNALED | IBV_SEND_INLINE), 0);
  std::memset(a->memory.data(), 2, 16);
  for (size_t received = 0; received < 2;) {
    sleep_until_event(*a);
    a->poll();
    received += b->poll().size();
  }
  EXPECT_EQ(b->memory.data()[15], 1);
}

TEST_F(SoftnicPacing, TheQueuePairsOfADeviceShareItsLink) {
  make({.link_bits_per_second = kSlow});
  End c(device_.get());
  End d;
  connect(c, d);
  const auto start = Clock::now();
  for (int i = 0; i < 2; ++i) {
    ASSERT_EQ(a->post_write(0, 4096, *b, 0, 1), 0);
    ASSERT_EQ(c.post_write(0, 4096, d, 0, 2), 0);
  }
  size_t done = 0;
  while (done < 4) done += a->poll().size() + c.poll().size();
  EXPECT_GE(Clock::now() - start, 4 * kMoment);
  disconnect(c, d);
}

TEST_F(SoftnicPacing, ACompletionIsHeldBackThoughTheMessageHasArrivedAndWakesItsSleeper) {
  make({.completion_delay = kMoment});
  ASSERT_EQ(b->post_recv(0, 64), 0);
  const auto start = Clock::now();
  ASSERT_EQ(a->post_send(0, 8, 1), 0);
  EXPECT_EQ(b->poll().size(), 1u);
  b->poll();  // acknowledges
  ASSERT_EQ(a->post_write(0, 8, *b, 0, 2), 0);
  std::vector<uint64_t> order;
  while (order.size() < 2) {
    sleep_until_event(*a);
    for (const ibv_wc& wc : a->poll()) {
      EXPECT_GE(Clock::now() - start, kMoment);
      order.push_back(wc.wr_id);
    }
  }
  EXPECT_EQ(order, (std::vector<uint64_t>{1, 2}));
}

TEST_F(SoftnicPacing, HeldBackCompletionsWakeTheSleeperOfAQueueOfManyQueuePairs) {
  make({.completion_delay = kMoment});
  constexpr uint32_t kMembers = 20;  // so many are found by their ready bits
  std::vector<ibv_qp*> others;
  for (uint32_t i = 0; i < kMembers; ++i) {
    QueuePairOptions options;
    options.send_cq = options.recv_cq = a->cq;
    options.send_depth = options.recv_depth = 4;
    others.push_back(a->device->create_qp(options).value().qp);
  }
  a->poll();  // joining has set all bits
  ASSERT_EQ(a->post_write(0, 8, *b, 0, 2), 0);
  std::vector<ibv_wc> completions;
  while (completions.empty()) {
    sleep_until_event(*a);
    completions = a->poll();
  }
  EXPECT_EQ(completions[0].wr_id, 2u);
  for (ibv_qp* qp : others) EXPECT_EQ(a->device->retire_qp(qp).value(), kQuiescedNow);
}

TEST_F(SoftnicPacing, AFailureEndsWhatWaitsForTheLinkAndWhatIsHeldBack) {
  make({.link_bits_per_second = kSlow, .completion_delay = std::chrono::seconds(10)});
  ASSERT_EQ(b->post_recv(0, 64), 0);
  ASSERT_EQ(a->post_send(0, 8, 1), 0);
  while (b->poll().empty()) a->poll();
  b->poll();
  ASSERT_EQ(a->post_send(0, 8192, 2), 0);
  ASSERT_EQ(a->post_send(0, 8, 3), 0);
  EXPECT_TRUE(a->poll().empty());
  ASSERT_TRUE(a->device->fail_qp(a->qp).ok());
  const std::vector<ibv_wc> flushed = a->poll();
  ASSERT_EQ(flushed.size(), 3u);
  for (uint64_t i = 0; i < 3; ++i) {
    EXPECT_EQ(flushed[i].wr_id, i + 1);
    EXPECT_EQ(flushed[i].status, IBV_WC_WR_FLUSH_ERR);
  }
  b->events();  // lets go as well
  b->poll();
  a->events();
}

// A link is idle between one write and the next if only one may be on its way; a copying processor
// has no use for a second. More than a few would be in the way of a call beside them.
TEST(SoftnicDevice, SaysWhetherWritesAreWorthPostingTogether) {
  EXPECT_EQ(open_device({})->limits().useful_writes, 1u);
  EXPECT_EQ(open_device({.link_bits_per_second = kMinLinkRate})->limits().useful_writes, 4u);
}

TEST(SoftnicDevice, RefusesImpossibleLinks) {
  EXPECT_EQ(open_softnic({.link_bits_per_second = kMinLinkRate - 1}).status().code(),
            Code::kInvalidArgument);
  EXPECT_EQ(open_softnic({.completion_delay = Nanoseconds(-1)}).status().code(),
            Code::kInvalidArgument);
  EXPECT_EQ(open_softnic({.completion_delay = kMaxCompletionDelay + 1ns}).status().code(),
            Code::kInvalidArgument);
}

}  // namespace
}  // namespace be
