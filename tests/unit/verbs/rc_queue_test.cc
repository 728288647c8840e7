// The queues of the RC core, one by one.
#include <gtest/gtest.h>

#include <cerrno>
#include <vector>

#include "be/verbs/rc/completion_queue.h"
#include "be/verbs/rc/memory_key.h"
#include "be/verbs/rc/queue_state.h"
#include "be/verbs/rc/receive_queue.h"
#include "be/verbs/rc/rnr.h"
#include "be/verbs/rc/send_queue.h"
#include "be/verbs/rc/work_request.h"

namespace be::rc {
namespace {

TEST(RcQueueState, OnlyTheMovesOfTheSpecificationAreLegal) {
  const ibv_qp_state all[] = {IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS,
                              IBV_QPS_SQD,   IBV_QPS_SQE,  IBV_QPS_ERR};
  auto forward = [](ibv_qp_state from, ibv_qp_state to) {
    switch (from) {
      case IBV_QPS_RESET:
        return to == IBV_QPS_INIT;
      case IBV_QPS_INIT:
        return to == IBV_QPS_INIT || to == IBV_QPS_RTR;
      case IBV_QPS_RTR:
        return to == IBV_QPS_RTS;
      case IBV_QPS_RTS:
      case IBV_QPS_SQD:
        return to == IBV_QPS_RTS || to == IBV_QPS_SQD;
      default:
        return false;
    }
  };
  for (const ibv_qp_state from : all) {
    for (const ibv_qp_state to : all) {
      const bool down = to == IBV_QPS_ERR || to == IBV_QPS_RESET;
      EXPECT_EQ(may_move(from, to), down || forward(from, to)) << from << " to " << to;
    }
  }
}

TEST(RcWorkRequest, WhatIsTooMuchOrUnknownIsRefused) {
  std::vector<ibv_sge> sges(5, {.addr = 0, .length = 100, .lkey = 0});
  ibv_send_wr request{};
  request.opcode = IBV_WR_SEND;
  request.sg_list = sges.data();
  request.num_sge = 4;
  const SendLimits limits{.max_sge = 4, .max_inline_bytes = 399};
  uint32_t length = 0;
  EXPECT_EQ(check_send(request, limits, &length), 0);
  EXPECT_EQ(length, 400u);
  request.send_flags = IBV_SEND_INLINE;
  EXPECT_EQ(check_send(request, limits, &length), EINVAL);
  request.send_flags = 0;
  request.num_sge = 5;
  EXPECT_EQ(check_send(request, limits, &length), EINVAL);
  request.num_sge = -1;
  EXPECT_EQ(check_send(request, limits, &length), EINVAL);
  request.num_sge = 4;
  request.opcode = IBV_WR_BIND_MW;
  EXPECT_EQ(check_send(request, limits, &length), EOPNOTSUPP);
  request.opcode = IBV_WR_SEND;
  sges[0].length = UINT32_MAX;
  EXPECT_EQ(check_send(request, limits, &length), EINVAL);
}

TEST(RcSendQueue, RecordsAreDoneInOrderOfAcknowledgedMessages) {
  SendQueue queue(4);
  for (int i = 0; i < 3; ++i) queue.post({.wr_id = static_cast<uint64_t>(i)});
  queue.execute(true);
  queue.execute(false);  // a WRITE: waits for the message before it only
  queue.execute(true);
  EXPECT_EQ(queue.next(), SendQueue::Next::kNothing);
  ASSERT_TRUE(queue.acknowledge(1));
  ASSERT_EQ(queue.next(), SendQueue::Next::kDone);
  EXPECT_EQ(queue.report(true).wr_id, 0u);
  ASSERT_EQ(queue.next(), SendQueue::Next::kDone);
  EXPECT_EQ(queue.report(true).wr_id, 1u);
  EXPECT_EQ(queue.next(), SendQueue::Next::kNothing);
}

TEST(RcSendQueue, PlacesReturnOnlyWithAVisibleCompletion) {
  SendQueue queue(2);
  queue.post({});
  queue.post({});
  queue.execute(false);
  queue.execute(false);
  EXPECT_TRUE(queue.full());
  queue.report(false);
  EXPECT_TRUE(queue.full());
  queue.report(true);
  EXPECT_FALSE(queue.full());
  queue.post({});
  queue.post({});
  EXPECT_TRUE(queue.full());
}

TEST(RcSendQueue, AcknowledgementsOfWhatWasNotSentAreRefused) {
  SendQueue queue(4);
  queue.post({});
  queue.execute(true);
  EXPECT_FALSE(queue.acknowledge(2));
  EXPECT_TRUE(queue.acknowledge(1));
  EXPECT_FALSE(queue.acknowledge(0));
}

TEST(RcSendQueue, ALocalFailureWaitsForTheMessagesBeforeIt) {
  SendQueue queue(4);
  queue.post({.wr_id = 1});
  queue.post({.wr_id = 2});
  queue.execute(true);
  queue.fail_execution(IBV_WC_LOC_PROT_ERR);
  EXPECT_EQ(queue.next(), SendQueue::Next::kNothing);
  ASSERT_TRUE(queue.acknowledge(1));
  ASSERT_EQ(queue.next(), SendQueue::Next::kDone);
  queue.report(true);
  ASSERT_EQ(queue.next(), SendQueue::Next::kFailed);
  EXPECT_EQ(queue.failure(), IBV_WC_LOC_PROT_ERR);
  EXPECT_EQ(queue.oldest().wr_id, 2u);
}

TEST(RcSendQueue, ARemoteRefusalHitsTheFirstUnacknowledgedMessage) {
  SendQueue queue(4);
  for (uint64_t i = 0; i < 3; ++i) queue.post({.wr_id = i});
  for (int i = 0; i < 3; ++i) queue.execute(true);
  ASSERT_TRUE(queue.acknowledge(1));
  queue.fail_remotely(IBV_WC_RNR_RETRY_EXC_ERR);
  ASSERT_EQ(queue.next(), SendQueue::Next::kDone);
  queue.report(true);
  ASSERT_EQ(queue.next(), SendQueue::Next::kFailed);
  EXPECT_EQ(queue.oldest().wr_id, 1u);
}

TEST(RcSendQueue, WhatIsHeldBackIsReportedInOrderWhenItIsReleased) {
  SendQueue queue(4);
  for (uint64_t i = 0; i < 3; ++i) queue.post({.wr_id = i});
  queue.execute_held_back(true);
  queue.execute_held_back(false);
  ASSERT_TRUE(queue.acknowledge(1));
  EXPECT_EQ(queue.next(), SendQueue::Next::kNothing) << "done, but held back";
  queue.fail_execution(IBV_WC_LOC_PROT_ERR);
  EXPECT_EQ(queue.next(), SendQueue::Next::kNothing) << "the failure is behind them";
  for (uint64_t i = 0; i < 2; ++i) {
    queue.release_next();
    ASSERT_EQ(queue.next(), SendQueue::Next::kDone);
    EXPECT_EQ(queue.report(true).wr_id, i);
  }
  EXPECT_FALSE(queue.holds_back());
  EXPECT_EQ(queue.next(), SendQueue::Next::kFailed);
}

TEST(RcSendQueue, WhatIsFlushedIsNotHeldBackAnyMore) {
  SendQueue queue(2);
  queue.post({.wr_id = 1});
  queue.execute_held_back(true);
  queue.post({.wr_id = 2});
  EXPECT_EQ(queue.report(true).wr_id, 1u);
  EXPECT_EQ(queue.report(true).wr_id, 2u);
  EXPECT_FALSE(queue.holds_back());
  EXPECT_FALSE(queue.awaits_report());
}

TEST(RcSendQueue, IndicesMayWrapAround) {
  SendQueue queue(3);
  for (uint64_t i = 0; i < 1000; ++i) {
    queue.post({.wr_id = i});
    queue.execute(i % 3 == 0);
    if (i % 3 == 0) {
      ASSERT_TRUE(queue.acknowledge(queue.messages()));
    }
    ASSERT_EQ(queue.next(), SendQueue::Next::kDone);
    ASSERT_EQ(queue.report(true).wr_id, i);
  }
  EXPECT_TRUE(queue.all_reported());
}

TEST(RcReceiveQueue, IsFirstInFirstOutAndBounded) {
  ReceiveQueue queue(3, 2);
  ibv_sge sges[3] = {{.addr = 1, .length = 2, .lkey = 3}, {}, {}};
  ibv_recv_wr request{};
  request.sg_list = sges;
  request.num_sge = 3;
  EXPECT_EQ(queue.post(request), EINVAL);
  request.num_sge = 1;
  for (uint64_t i = 0; i < 3; ++i) {
    request.wr_id = i;
    ASSERT_EQ(queue.post(request), 0);
  }
  EXPECT_EQ(queue.post(request), ENOMEM);
  sges[0].addr = 99;  // the queue has its own copy
  for (uint64_t i = 0; i < 3; ++i) {
    EXPECT_EQ(queue.front().wr_id, i);
    EXPECT_EQ(queue.front().sges[0].addr, 1u);
    queue.take();
  }
  EXPECT_TRUE(queue.empty());
}

ibv_wc completion(uint64_t wr_id, uint32_t qp = 1) {
  ibv_wc wc{};
  wc.wr_id = wr_id;
  wc.qp_num = qp;
  return wc;
}

TEST(RcCompletionQueue, OrderIsKeptAcrossTheShortCut) {
  CompletionQueue queue(8);
  queue.push(completion(1));
  queue.push(completion(2));
  queue.push(completion(3));
  ibv_wc out[4];
  queue.begin_poll(out, 2);
  queue.push(completion(4));  // no room: behind 3
  EXPECT_EQ(queue.end_poll(), 2);
  EXPECT_EQ(out[0].wr_id, 1u);
  EXPECT_EQ(out[1].wr_id, 2u);
  queue.begin_poll(out, 4);
  queue.push(completion(5));  // straight to the caller
  EXPECT_EQ(queue.end_poll(), 3);
  EXPECT_EQ(out[0].wr_id, 3u);
  EXPECT_EQ(out[1].wr_id, 4u);
  EXPECT_EQ(out[2].wr_id, 5u);
  EXPECT_TRUE(queue.empty());
}

TEST(RcCompletionQueue, OverflowIsNoticedAndFinal) {
  CompletionQueue queue(3);
  for (uint64_t i = 0; i < 3; ++i) queue.push(completion(i));
  EXPECT_FALSE(queue.overflowed());
  queue.push(completion(3));
  EXPECT_TRUE(queue.overflowed());
  ibv_wc out[4];
  queue.begin_poll(out, 4);
  EXPECT_EQ(queue.end_poll(), 3);
  EXPECT_TRUE(queue.overflowed());
}

TEST(RcCompletionQueue, DropForgetsOneQueuePairOnly) {
  CompletionQueue queue(8);
  for (uint64_t i = 0; i < 6; ++i) queue.push(completion(i, 1 + i % 2));
  queue.drop(1);
  ibv_wc out[8];
  queue.begin_poll(out, 8);
  ASSERT_EQ(queue.end_poll(), 3);
  EXPECT_EQ(out[0].wr_id, 1u);
  EXPECT_EQ(out[1].wr_id, 3u);
  EXPECT_EQ(out[2].wr_id, 5u);
}

TEST(RcMemoryKey, AStaleKeyDiffersFromItsSuccessors) {
  uint32_t generation = 0;
  const uint32_t first = make_key(7, generation = next_generation(generation));
  for (int i = 0; i < 4094; ++i) {
    generation = next_generation(generation);
    ASSERT_NE(make_key(7, generation), first);
    ASSERT_EQ(key_index(make_key(7, generation)), 7u);
    ASSERT_NE(key_generation(make_key(7, generation)), 0u);
  }
}

TEST(RcMemoryKey, BoundsAreCheckedWithoutOverflow) {
  const Region region{.address = 1000, .length = 100, .access = IBV_ACCESS_REMOTE_WRITE};
  EXPECT_TRUE(region.allows(1000, 100, IBV_ACCESS_REMOTE_WRITE));
  EXPECT_TRUE(region.allows(1100, 0, 0));
  EXPECT_FALSE(region.allows(1000, 101, 0));
  EXPECT_FALSE(region.allows(999, 1, 0));
  EXPECT_FALSE(region.allows(1099, 2, 0));
  EXPECT_FALSE(region.allows(UINT64_MAX, 2, 0));
  EXPECT_FALSE(region.allows(1001, UINT64_MAX, 0));
  EXPECT_FALSE(region.allows(1000, 1, IBV_ACCESS_LOCAL_WRITE));
}

TEST(RcRnr, TheTimerCodesAreThoseOfTheSpecification) {
  using std::chrono::microseconds;
  EXPECT_EQ(rnr_delay(0), microseconds(655360));
  EXPECT_EQ(rnr_delay(1), microseconds(10));
  EXPECT_EQ(rnr_delay(12), microseconds(640));
  EXPECT_EQ(rnr_delay(31), microseconds(491520));
}

}  // namespace
}  // namespace be::rc
