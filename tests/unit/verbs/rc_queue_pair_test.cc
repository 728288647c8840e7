// The RC core as a whole, with the test as its wire.
#include <gtest/gtest.h>

#include <cerrno>
#include <vector>

#include "be/verbs/rc/queue_pair.h"

namespace be::rc {
namespace {

class RcQueuePair : public testing::Test {
 protected:
  RcQueuePair() : send_cq(16), recv_cq(16) {
    config.number = 5;
    config.send_cq = &send_cq;
    config.recv_cq = &recv_cq;
    config.send_depth = config.recv_depth = 4;
    config.limits = {.max_sge = 2, .max_inline_bytes = 64};
  }

  static void bring_up(QueuePair& qp) {
    ASSERT_TRUE(qp.move_to(IBV_QPS_INIT));
    ASSERT_TRUE(qp.move_to(IBV_QPS_RTR));
    ASSERT_TRUE(qp.move_to(IBV_QPS_RTS));
  }
  static int send(QueuePair& qp, uint64_t wr_id, bool signalled = true) {
    ibv_send_wr request{};
    request.wr_id = wr_id;
    request.opcode = IBV_WR_SEND;
    request.send_flags = signalled ? IBV_SEND_SIGNALED : 0;
    uint32_t length = 0;
    return qp.admit(request, &length);
  }
  static int receive(QueuePair& qp, uint64_t wr_id) {
    ibv_recv_wr request{};
    request.wr_id = wr_id;
    return qp.post_receive(request);
  }
  static std::vector<ibv_wc> poll(CompletionQueue& queue) {
    std::vector<ibv_wc> out(16);
    queue.begin_poll(out.data(), 16);
    out.resize(static_cast<size_t>(queue.end_poll()));
    return out;
  }

  CompletionQueue send_cq;
  CompletionQueue recv_cq;
  QueuePairConfig config;
};

TEST_F(RcQueuePair, SendsAreRefusedBeforeRtsAndReceivesBeforeInit) {
  QueuePair qp(config);
  EXPECT_EQ(receive(qp, 1), EINVAL);
  ASSERT_TRUE(qp.move_to(IBV_QPS_INIT));
  EXPECT_EQ(receive(qp, 1), 0);
  EXPECT_EQ(send(qp, 1), EINVAL);
  ASSERT_FALSE(qp.move_to(IBV_QPS_RTS));
  ASSERT_TRUE(qp.move_to(IBV_QPS_RTR));
  EXPECT_EQ(send(qp, 1), EINVAL);
  ASSERT_TRUE(qp.move_to(IBV_QPS_RTS));
  EXPECT_EQ(send(qp, 1), 0);
}

TEST_F(RcQueuePair, UnsignalledSuccessMakesNoCompletionButItsFailureDoes) {
  QueuePair qp(config);
  bring_up(qp);
  ASSERT_EQ(send(qp, 1, false), 0);
  ASSERT_EQ(send(qp, 2, false), 0);
  qp.sends().execute(true);
  qp.sends().execute(true);
  ASSERT_TRUE(qp.sends().acknowledge(1));
  EXPECT_TRUE(qp.report_sends(true));
  EXPECT_TRUE(poll(send_cq).empty());
  qp.sends().fail_remotely(IBV_WC_REM_OP_ERR);
  EXPECT_FALSE(qp.report_sends(true));
  const auto completions = poll(send_cq);
  ASSERT_EQ(completions.size(), 1u);
  EXPECT_EQ(completions[0].wr_id, 2u);
  EXPECT_EQ(completions[0].status, IBV_WC_REM_OP_ERR);
  EXPECT_EQ(qp.state(), IBV_QPS_ERR);
}

TEST_F(RcQueuePair, TheFirstErrorFlushesAllThatIsLeftInOrder) {
  QueuePair qp(config);
  bring_up(qp);
  for (uint64_t i = 0; i < 4; ++i) ASSERT_EQ(send(qp, i, i == 3), 0);
  for (uint64_t i = 10; i < 13; ++i) ASSERT_EQ(receive(qp, i), 0);
  qp.sends().execute(true);
  qp.sends().execute(true);
  ASSERT_TRUE(qp.sends().acknowledge(1));
  qp.sends().fail_remotely(IBV_WC_RNR_RETRY_EXC_ERR);
  EXPECT_FALSE(qp.report_sends(true));
  const auto sent = poll(send_cq);
  ASSERT_EQ(sent.size(), 3u);
  EXPECT_EQ(sent[0].wr_id, 1u);
  EXPECT_EQ(sent[0].status, IBV_WC_RNR_RETRY_EXC_ERR);
  for (size_t i = 1; i < 3; ++i) {
    EXPECT_EQ(sent[i].wr_id, 1 + i);
    EXPECT_EQ(sent[i].status, IBV_WC_WR_FLUSH_ERR);
    EXPECT_EQ(sent[i].qp_num, 5u);
  }
  const auto received = poll(recv_cq);
  ASSERT_EQ(received.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(received[i].wr_id, 10 + i);
    EXPECT_EQ(received[i].status, IBV_WC_WR_FLUSH_ERR);
  }
}

TEST_F(RcQueuePair, WhatIsPostedInErrorIsFlushedAtOnce) {
  QueuePair qp(config);
  bring_up(qp);
  qp.fail(77);
  for (uint64_t i = 0; i < 10; ++i) {  // more than the queues hold
    ASSERT_EQ(send(qp, i, false), 0);
    ASSERT_EQ(receive(qp, i), 0);
    for (CompletionQueue* queue : {&send_cq, &recv_cq}) {
      const auto completions = poll(*queue);
      ASSERT_EQ(completions.size(), 1u);
      EXPECT_EQ(completions[0].wr_id, i);
      EXPECT_EQ(completions[0].status, IBV_WC_WR_FLUSH_ERR);
      EXPECT_EQ(completions[0].vendor_err, 77u);
    }
  }
}

TEST_F(RcQueuePair, AReceiveThatFailsGivesItsStatusAndThenFlushes) {
  QueuePair qp(config);
  bring_up(qp);
  ASSERT_EQ(receive(qp, 1), 0);
  ASSERT_EQ(receive(qp, 2), 0);
  qp.fail_receive(IBV_WC_LOC_LEN_ERR, 0);
  const auto received = poll(recv_cq);
  ASSERT_EQ(received.size(), 2u);
  EXPECT_EQ(received[0].status, IBV_WC_LOC_LEN_ERR);
  EXPECT_EQ(received[1].status, IBV_WC_WR_FLUSH_ERR);
}

TEST_F(RcQueuePair, ReceivesOfASharedQueueSurviveTheErrorOfOneUser) {
  ReceiveQueue srq(8, 1);
  config.srq = &srq;
  QueuePair qp(config);
  bring_up(qp);
  ibv_recv_wr request{};
  ASSERT_EQ(srq.post(request), 0);
  EXPECT_EQ(receive(qp, 1), EINVAL);
  qp.fail(0);
  EXPECT_EQ(srq.size(), 1u);
  EXPECT_TRUE(poll(recv_cq).empty());
}

TEST_F(RcQueuePair, ReportingStopsWhenThePollHasNoRoomAndGoesOnLater) {
  QueuePair qp(config);
  bring_up(qp);
  for (uint64_t i = 0; i < 4; ++i) {
    ASSERT_EQ(send(qp, i), 0);
    qp.sends().execute(false);
  }
  ibv_wc out[4];
  send_cq.begin_poll(out, 3);
  EXPECT_TRUE(qp.report_sends(false));
  EXPECT_EQ(send_cq.end_poll(), 3);
  send_cq.begin_poll(out, 3);
  EXPECT_TRUE(qp.report_sends(false));
  ASSERT_EQ(send_cq.end_poll(), 1);
  EXPECT_EQ(out[0].wr_id, 3u);
}

TEST_F(RcQueuePair, ImmediateValueAndLengthArriveWithTheReceive) {
  QueuePair qp(config);
  bring_up(qp);
  ASSERT_EQ(receive(qp, 9), 0);
  qp.complete_receive({.write_with_imm = true,
                       .immediate = true,
                       .imm_data = 0x1234,
                       .byte_len = 100,
                       .source_qp = 8});
  const auto received = poll(recv_cq);
  ASSERT_EQ(received.size(), 1u);
  EXPECT_EQ(received[0].wr_id, 9u);
  EXPECT_EQ(received[0].opcode, IBV_WC_RECV_RDMA_WITH_IMM);
  EXPECT_EQ(received[0].imm_data, 0x1234u);
  EXPECT_EQ(received[0].byte_len, 100u);
  EXPECT_EQ(received[0].src_qp, 8u);
}

TEST(RcRnrVerdict, CountsTheAttemptsAndSevenMeansForEver) {
  EXPECT_EQ(judge_rnr(0, 1), RnrVerdict::kGiveUp);
  EXPECT_EQ(judge_rnr(2, 2), RnrVerdict::kRetry);
  EXPECT_EQ(judge_rnr(2, 3), RnrVerdict::kGiveUp);
  EXPECT_EQ(judge_rnr(7, 1000000), RnrVerdict::kRetry);
}

}  // namespace
}  // namespace be::rc
