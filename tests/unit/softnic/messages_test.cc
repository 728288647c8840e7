#include <numeric>

#include "tests/unit/softnic/fixture.h"

namespace be {
namespace {

class SoftnicMessages : public testing::Test {
 protected:
  void SetUp() override { connect(a, b); }
  void TearDown() override { disconnect(a, b); }

  End a;
  End b;
};

TEST_F(SoftnicMessages, SmallSendArrivesInThePostedReceive) {
  ASSERT_EQ(b.post_recv(0, 64, 7), 0);
  std::memcpy(a.memory.data(), "hello", 5);
  ASSERT_EQ(a.post_send(0, 5, 9), 0);
  const auto received = b.poll();
  ASSERT_EQ(received.size(), 1u);
  EXPECT_EQ(received[0].wr_id, 7u);
  EXPECT_EQ(received[0].status, IBV_WC_SUCCESS);
  EXPECT_EQ(received[0].opcode, IBV_WC_RECV);
  EXPECT_EQ(received[0].byte_len, 5u);
  EXPECT_EQ(received[0].qp_num, b.qp->qp_num);
  EXPECT_EQ(std::memcmp(b.memory.data(), "hello", 5), 0);
}

TEST_F(SoftnicMessages, SendCompletesOnlyWhenThePeerHasMatchedIt) {
  ASSERT_EQ(a.post_send(0, 5, 9), 0);
  EXPECT_TRUE(a.poll().empty());
  ASSERT_EQ(b.post_recv(0, 64), 0);
  ASSERT_EQ(b.poll().size(), 1u);
  b.poll();
  const auto sent = a.poll();
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].wr_id, 9u);
  EXPECT_EQ(sent[0].opcode, IBV_WC_SEND);
}

TEST_F(SoftnicMessages, LargeSendIsFetchedFromTheSendersMemory) {
  constexpr uint32_t kBytes = 1 << 20;
  std::iota(a.memory.data(), a.memory.data() + kBytes, uint8_t{3});
  ASSERT_EQ(b.post_recv(0, kBytes), 0);
  ASSERT_EQ(a.post_send(0, kBytes), 0);
  ASSERT_EQ(b.poll().size(), 1u);
  EXPECT_EQ(std::memcmp(a.memory.data(), b.memory.data(), kBytes), 0);
}

TEST_F(SoftnicMessages, WriteGoesToTheRemoteAddressAndTellsNobody) {
  std::memcpy(a.memory.data(), "written", 7);
  ASSERT_EQ(a.post_write(0, 7, b, 1000, 5), 0);
  const auto sent = a.poll();
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].wr_id, 5u);
  EXPECT_EQ(sent[0].opcode, IBV_WC_RDMA_WRITE);
  EXPECT_EQ(std::memcmp(b.memory.data() + 1000, "written", 7), 0);
  EXPECT_TRUE(b.poll().empty());
}

TEST_F(SoftnicMessages, WriteWithImmediateConsumesAReceiveAndBringsTheValue) {
  std::memcpy(a.memory.data(), "written", 7);
  ASSERT_EQ(b.post_recv(0, 0, 3), 0);
  ASSERT_EQ(a.post_write(0, 7, b, 1000, 5, IBV_WR_RDMA_WRITE_WITH_IMM, 0xabcd), 0);
  const auto received = b.poll();
  ASSERT_EQ(received.size(), 1u);
  EXPECT_EQ(received[0].opcode, IBV_WC_RECV_RDMA_WITH_IMM);
  EXPECT_EQ(received[0].wr_id, 3u);
  EXPECT_EQ(received[0].imm_data, 0xabcdu);
  EXPECT_EQ(received[0].byte_len, 7u);
  EXPECT_TRUE(received[0].wc_flags & IBV_WC_WITH_IMM);
  EXPECT_EQ(std::memcmp(b.memory.data() + 1000, "written", 7), 0);
}

TEST_F(SoftnicMessages, LargeWritesAreExecutedByThePollOneEach) {
  constexpr uint32_t kBytes = 64 << 10;
  std::memset(a.memory.data(), 7, kBytes);
  ASSERT_EQ(a.post_write(0, kBytes, b, 0, 1), 0);
  ASSERT_EQ(a.post_write(0, kBytes, b, kBytes, 2), 0);
  EXPECT_EQ(b.memory.data()[0], 0);
  ASSERT_EQ(a.poll().size(), 1u);
  EXPECT_EQ(b.memory.data()[0], 7);
  EXPECT_EQ(b.memory.data()[kBytes], 0);
  ASSERT_EQ(a.poll().size(), 1u);
  EXPECT_EQ(b.memory.data()[2 * kBytes - 1], 7);
}

TEST_F(SoftnicMessages, WorkBehindALargeWriteKeepsItsPlaceAndItsInlineBytes) {
  constexpr uint32_t kBytes = 64 << 10;
  ASSERT_EQ(b.post_recv(1 << 20, 64), 0);
  ASSERT_EQ(a.post_write(0, kBytes, b, 0, 1), 0);
  char text[] = "behind";
  ibv_sge entry{.addr = reinterpret_cast<uint64_t>(text), .length = 6, .lkey = 0};
  ibv_send_wr request{};
  request.wr_id = 2;
  request.opcode = IBV_WR_SEND;
  request.send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE;
  request.sg_list = &entry;
  request.num_sge = 1;
  ASSERT_EQ(a.post(request), 0);
  std::memset(text, 'x', sizeof(text));
  EXPECT_TRUE(b.poll().empty());
  ASSERT_EQ(a.poll().size(), 1u);
  ASSERT_EQ(b.poll().size(), 1u);
  EXPECT_EQ(std::memcmp(b.memory.data() + (1 << 20), "behind", 6), 0);
}

TEST_F(SoftnicMessages, GatherAndScatterListsMeetInOneMessage) {
  for (const uint32_t part : {20u, 2000u}) {  // in the slot; fetched
    std::iota(a.memory.data(), a.memory.data() + 4 * part, uint8_t{1});
    ibv_sge out[3] = {a.sge(0, part), a.sge(2 * part, part), a.sge(part, part)};
    ibv_sge in[2] = {b.sge(10000, part / 2), b.sge(20000, 3 * part)};
    ibv_recv_wr receive{};
    receive.sg_list = in;
    receive.num_sge = 2;
    ibv_recv_wr* bad_receive = nullptr;
    ASSERT_EQ(ibv_post_recv(b.qp, &receive, &bad_receive), 0);
    ibv_send_wr request{};
    request.opcode = IBV_WR_SEND;
    request.sg_list = out;
    request.num_sge = 3;
    ASSERT_EQ(a.post(request), 0);
    ASSERT_EQ(b.poll().size(), 1u);
    std::vector<uint8_t> expected;
    for (const size_t from : {size_t{0}, size_t{2} * part, size_t{part}}) {
      expected.insert(expected.end(), a.memory.data() + from, a.memory.data() + from + part);
    }
    EXPECT_EQ(std::memcmp(b.memory.data() + 10000, expected.data(), part / 2), 0);
    EXPECT_EQ(std::memcmp(b.memory.data() + 20000, expected.data() + part / 2,
                          expected.size() - part / 2),
              0);
  }
}

TEST_F(SoftnicMessages, UnsignalledWorkIsSilentAndASignalledOneFreesTheQueue) {
  for (int round = 0; round < 10; ++round) {
    for (int i = 0; i < 16; ++i) {
      ASSERT_EQ(b.post_recv(0, 64), 0);
      ASSERT_EQ(a.post_send(0, 8, static_cast<uint64_t>(i), i == 15 ? IBV_SEND_SIGNALED : 0), 0);
    }
    EXPECT_EQ(a.post_send(0, 8, 99), ENOMEM);
    EXPECT_EQ(b.poll().size(), 16u);
    b.poll();
    const auto sent = a.poll();
    ASSERT_EQ(sent.size(), 1u);
    EXPECT_EQ(sent[0].wr_id, 15u);
  }
}

TEST_F(SoftnicMessages, CompletionsComeInPostOrderAlsoWhenAWriteIsDoneEarlier) {
  ASSERT_EQ(a.post_send(0, 8, 1, 0), 0);
  ASSERT_EQ(a.post_write(0, 8, b, 0, 2), 0);
  EXPECT_TRUE(a.poll().empty());
  ASSERT_EQ(b.post_recv(64, 64), 0);
  ASSERT_EQ(b.poll().size(), 1u);
  b.poll();
  const auto sent = a.poll();
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].wr_id, 2u);
}

TEST_F(SoftnicMessages, AReplyBringsTheAcknowledgementOfTheRequest) {
  ASSERT_EQ(a.post_recv(0, 64, 1), 0);
  ASSERT_EQ(b.post_recv(0, 64, 2), 0);
  ASSERT_EQ(a.post_send(0, 8, 3), 0);
  ASSERT_EQ(b.poll().size(), 1u);
  ASSERT_EQ(b.post_send(0, 8, 4), 0);
  const auto completions = a.poll();
  ASSERT_EQ(completions.size(), 2u);
  EXPECT_EQ(completions[0].wr_id, 1u);
  EXPECT_EQ(completions[1].wr_id, 3u);
}

TEST(SoftnicAcknowledgements, ASlotMayCarryAnOlderCountThanTheBlock) {
  End a;
  End b;
  connect(a, b, {.rnr_retry = 7});
  for (int i = 0; i < 2; ++i) ASSERT_EQ(b.post_recv(0, 64), 0);
  ASSERT_EQ(a.post_send(0, 8, 1), 0);
  ASSERT_EQ(b.poll().size(), 1u);
  ASSERT_EQ(b.post_send(0, 8, 3), 0);  // says that one was received; a has no receive for it yet
  ASSERT_EQ(a.post_send(0, 8, 2), 0);
  ASSERT_EQ(b.poll().size(), 1u);
  b.poll();                                  // says in the block: two
  ASSERT_EQ(ibv_req_notify_cq(a.cq, 0), 0);  // reads the block, not the slot
  ASSERT_EQ(a.post_recv(0, 64, 4), 0);
  std::vector<uint64_t> completed;
  for (const ibv_wc& completion : a.poll()) {
    EXPECT_EQ(completion.status, IBV_WC_SUCCESS);
    completed.push_back(completion.wr_id);
  }
  EXPECT_EQ(completed, (std::vector<uint64_t>{4, 1, 2}));
  EXPECT_EQ(a.device->qp_state(a.qp), IBV_QPS_RTS);
  a.events();  // the receive's wake-up
  disconnect(a, b);
}

}  // namespace
}  // namespace be
