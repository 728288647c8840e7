#include <filesystem>

#include "tests/unit/softnic/fixture.h"

namespace be {
namespace {

size_t open_descriptors() {
  size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    (void)entry;
    ++count;
  }
  return count;
}

class SoftnicFailures : public testing::Test {
 protected:
  void SetUp() override { connect(a, b); }
  void TearDown() override { disconnect(a, b); }

  static void expect_flushed(const ibv_wc& wc, uint64_t wr_id) {
    EXPECT_EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
    EXPECT_EQ(wc.wr_id, wr_id);
  }
  static const DeviceEvent* find(const std::vector<DeviceEvent>& events, DeviceEvent::Kind kind) {
    for (const DeviceEvent& event : events) {
      if (event.kind == kind) return &event;
    }
    return nullptr;
  }

  End a;
  End b;
};

TEST_F(SoftnicFailures, AWriteWithAStaleKeyIsRefusedAndTouchesNothing) {
  ibv_mr* gone =
      b.device->register_memory(b.memory.data(), 4096, kAllAccess, b.memory.backing()).value();
  ibv_sge entry = a.sge(0, 8);
  ibv_send_wr request{};
  request.wr_id = 4;
  request.opcode = IBV_WR_RDMA_WRITE;
  request.sg_list = &entry;
  request.num_sge = 1;
  request.wr.rdma.remote_addr = reinterpret_cast<uint64_t>(b.memory.data());
  request.wr.rdma.rkey = gone->rkey;
  ASSERT_TRUE(b.device->deregister(gone).ok());
  ibv_mr* next =
      b.device->register_memory(b.memory.data(), 4096, kAllAccess, b.memory.backing()).value();
  std::memset(a.memory.data(), 1, 8);
  ASSERT_EQ(a.post(request), 0);
  ASSERT_EQ(a.post_send(0, 8, 5), 0);
  const auto sent = a.poll();
  ASSERT_EQ(sent.size(), 2u);
  EXPECT_EQ(sent[0].wr_id, 4u);
  EXPECT_EQ(sent[0].status, IBV_WC_REM_ACCESS_ERR);
  expect_flushed(sent[1], 5);
  EXPECT_EQ(b.memory.data()[0], 0);
  EXPECT_EQ(a.device->qp_state(a.qp), IBV_QPS_ERR);
  ASSERT_TRUE(b.device->deregister(next).ok());
}

TEST_F(SoftnicFailures, AWriteBeyondTheRegionIsRefused) {
  ASSERT_EQ(a.post_write(0, 16, b, b.memory.size() - 8), 0);
  const auto sent = a.poll();
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].status, IBV_WC_REM_ACCESS_ERR);
}

TEST_F(SoftnicFailures, AWriteNeedsTheRemoteWriteRight) {
  ibv_mr* read_only =
      b.device->register_memory(b.memory.data(), 4096, IBV_ACCESS_LOCAL_WRITE, b.memory.backing())
          .value();
  std::swap(read_only, b.mr);
  ASSERT_EQ(a.post_write(0, 16, b, 0), 0);
  std::swap(read_only, b.mr);
  const auto sent = a.poll();
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].status, IBV_WC_REM_ACCESS_ERR);
  ASSERT_TRUE(b.device->deregister(read_only).ok());
}

TEST_F(SoftnicFailures, ALocalKeyThatDoesNotCoverTheBytesIsAProtectionError) {
  ibv_sge entry = a.sge(a.memory.size() - 4, 8);
  ibv_send_wr request{};
  request.opcode = IBV_WR_SEND;
  request.sg_list = &entry;
  request.num_sge = 1;
  ASSERT_EQ(a.post(request), 0);
  const auto sent = a.poll();
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].status, IBV_WC_LOC_PROT_ERR);
}

TEST_F(SoftnicFailures, AMessageLongerThanItsReceiveFailsBothEnds) {
  ASSERT_EQ(b.post_recv(0, 10, 1), 0);
  ASSERT_EQ(b.post_recv(0, 10, 2), 0);
  ASSERT_EQ(a.post_send(0, 11, 3), 0);
  const auto received = b.poll();
  ASSERT_EQ(received.size(), 2u);
  EXPECT_EQ(received[0].wr_id, 1u);
  EXPECT_EQ(received[0].status, IBV_WC_LOC_LEN_ERR);
  expect_flushed(received[1], 2);
  const auto sent = a.poll();
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].wr_id, 3u);
  EXPECT_EQ(sent[0].status, IBV_WC_REM_INV_REQ_ERR);
}

TEST_F(SoftnicFailures, AReceiveWithABadKeyFailsBothEnds) {
  ibv_sge entry = b.sge(0, 64);
  entry.lkey ^= 1;
  ibv_recv_wr request{};
  request.sg_list = &entry;
  request.num_sge = 1;
  ibv_recv_wr* bad = nullptr;
  ASSERT_EQ(ibv_post_recv(b.qp, &request, &bad), 0);
  ASSERT_EQ(a.post_send(0, 11), 0);
  const auto received = b.poll();
  ASSERT_EQ(received.size(), 1u);
  EXPECT_EQ(received[0].status, IBV_WC_LOC_PROT_ERR);
  const auto sent = a.poll();
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].status, IBV_WC_REM_OP_ERR);
}

TEST_F(SoftnicFailures, WithoutRnrRetriesAMessageThatFindsNoReceiveEndsTheConnection) {
  ASSERT_EQ(b.post_recv(0, 64), 0);
  ASSERT_EQ(a.post_send(0, 8, 1), 0);
  ASSERT_EQ(a.post_send(0, 8, 2), 0);
  EXPECT_EQ(b.poll().size(), 1u);
  const auto sent = a.poll();
  ASSERT_EQ(sent.size(), 2u);
  EXPECT_EQ(sent[0].status, IBV_WC_SUCCESS);
  EXPECT_EQ(sent[1].wr_id, 2u);
  EXPECT_EQ(sent[1].status, IBV_WC_RNR_RETRY_EXC_ERR);
}

TEST_F(SoftnicFailures, FailQpFlushesOursAndTellsThePeer) {
  ASSERT_EQ(a.post_recv(0, 64, 1), 0);
  ASSERT_EQ(b.post_recv(0, 64, 2), 0);
  ASSERT_EQ(a.post_write(0, 64 << 10, b, 0, 3), 0);  // not executed yet
  ASSERT_TRUE(a.device->fail_qp(a.qp).ok());
  auto completions = a.poll();
  ASSERT_EQ(completions.size(), 2u);
  expect_flushed(completions[0], 3);
  expect_flushed(completions[1], 1);
  ASSERT_TRUE(b.readable());
  const auto events = b.events();
  const DeviceEvent* fatal = find(events, DeviceEvent::Kind::kQpFatal);
  ASSERT_NE(fatal, nullptr);
  EXPECT_EQ(fatal->qp, b.qp);
  EXPECT_EQ(fatal->status.code(), Code::kUnavailable);
  completions = b.poll();
  ASSERT_EQ(completions.size(), 1u);
  expect_flushed(completions[0], 2);
}

TEST_F(SoftnicFailures, WhatWasSentBeforeTheResetIsStillDelivered) {
  ASSERT_EQ(b.post_recv(0, 64, 1), 0);
  ASSERT_EQ(b.post_recv(0, 64, 2), 0);
  std::memcpy(a.memory.data(), "goodbye", 7);
  ASSERT_EQ(a.post_send(0, 7), 0);
  ASSERT_TRUE(a.device->fail_qp(a.qp).ok());
  b.events();
  const auto received = b.poll();
  ASSERT_EQ(received.size(), 2u);
  EXPECT_EQ(received[0].status, IBV_WC_SUCCESS);
  EXPECT_EQ(std::memcmp(b.memory.data(), "goodbye", 7), 0);
  expect_flushed(received[1], 2);
}

TEST_F(SoftnicFailures, AnOverflowingCompletionQueueFailsItsQueuePairs) {
  ibv_cq* small = a.device->create_cq(2, a.channel.get(), nullptr, nullptr).value();
  QueuePairOptions options;
  options.send_cq = options.recv_cq = small;
  options.send_depth = options.recv_depth = 8;
  ibv_qp* qp = a.device->create_qp(options).value().qp;
  ibv_recv_wr request{};
  ibv_recv_wr* bad = nullptr;
  for (int i = 0; i < 4; ++i) ASSERT_EQ(ibv_post_recv(qp, &request, &bad), 0);
  ASSERT_TRUE(a.device->fail_qp(qp).ok());  // 4 flushes, 2 places
  ibv_qp* other = a.device->create_qp(options).value().qp;
  ibv_wc wc[4];
  EXPECT_EQ(ibv_poll_cq(small, 4, wc), 2);
  EXPECT_EQ(a.device->qp_state(other), IBV_QPS_ERR);
  EXPECT_EQ(a.device->retire_qp(other).value(), kQuiescedNow);
  EXPECT_EQ(a.device->retire_qp(qp).value(), kQuiescedNow);
  ASSERT_TRUE(a.device->destroy_cq(small).ok());
  a.events();
}

TEST(SoftnicQuiesce, ARetiredQueuePairIsQuietOnlyWhenThePeerHasConfirmed) {
  End a;
  End b;
  connect(a, b);
  const QuiesceToken token = a.retire();
  ASSERT_NE(token, kQuiescedNow);
  EXPECT_TRUE(a.events().empty());  // the peer has not looked yet
  b.events();
  ASSERT_TRUE(a.readable());
  const auto events = a.events();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].kind, DeviceEvent::Kind::kQuiesced);
  EXPECT_EQ(events[0].token, token);
  EXPECT_EQ(b.retire(), kQuiescedNow);
}

TEST(SoftnicQuiesce, BothMayRetireAtTheSameTime) {
  End a;
  End b;
  connect(a, b);
  const QuiesceToken token_a = a.retire();
  const QuiesceToken token_b = b.retire();
  ASSERT_NE(token_a, kQuiescedNow);
  ASSERT_NE(token_b, kQuiescedNow);
  for (auto [end, token] : {std::pair{&a, token_a}, std::pair{&b, token_b}}) {
    const auto events = end->events();
    ASSERT_EQ(events.size(), 1u);
    EXPECT_EQ(events[0].kind, DeviceEvent::Kind::kQuiesced);
    EXPECT_EQ(events[0].token, token);
  }
}

TEST(SoftnicQuiesce, AQueuePairThatNeverConnectedIsQuietAtOnce) {
  End a;
  EXPECT_EQ(a.retire(), kQuiescedNow);
}

TEST(SoftnicQuiesce, DescriptorsAreBackAtTheStart) {
  const auto device_a = open_device();
  const auto device_b = open_device();
  const size_t before = open_descriptors();
  for (int round = 0; round < 3; ++round) {
    End a(device_a.get());
    End b(device_b.get());
    connect(a, b);
    ASSERT_EQ(b.post_recv(0, 64), 0);
    ASSERT_EQ(a.post_send(0, 8), 0);
    ASSERT_EQ(b.poll().size(), 1u);
    disconnect(a, b);
  }
  EXPECT_EQ(open_descriptors(), before);
}

// Writes what no correct peer would write, through the peer's own mapping of our ring.
class SoftnicBadPeer : public testing::Test {
 protected:
  // The slot that the next SEND of `from` goes to, found by what it carries.
  static uint8_t* find_in_mappings(const char* text, size_t length) {
    FILE* maps = fopen("/proc/self/maps", "r");
    char line[512];
    uint8_t* found = nullptr;
    while (fgets(line, sizeof(line), maps) != nullptr) {
      unsigned long begin = 0;
      unsigned long end = 0;
      if (strstr(line, "byteexpress-softnic") == nullptr ||
          sscanf(line, "%lx-%lx", &begin, &end) != 2) {
        continue;
      }
      // Rings begin within the first few MiB; beyond are holes.
      const size_t bytes = std::min<size_t>(end - begin, size_t{8} << 20);
      void* at = memmem(reinterpret_cast<void*>(begin), bytes, text, length);
      if (at != nullptr) found = static_cast<uint8_t*>(at);
    }
    fclose(maps);
    return found;
  }

  void corrupt(size_t offset_from_payload, uint8_t value) {
    End a;
    End b;
    End c(b.device);
    End d(a.device);
    connect(a, b);
    connect(d, c);
    ASSERT_EQ(b.post_recv(0, 64), 0);
    ASSERT_EQ(c.post_recv(0, 64), 0);
    const char text[] = "a text that is found nowhere else in the ring";
    std::memcpy(a.memory.data(), text, sizeof(text));
    ASSERT_EQ(a.post_send(0, sizeof(text)), 0);
    uint8_t* payload = find_in_mappings(text, sizeof(text));
    ASSERT_NE(payload, nullptr);
    *(payload - 16 + offset_from_payload) = value;
    EXPECT_TRUE(b.poll().size() <= 1u);
    EXPECT_EQ(b.device->qp_state(b.qp), IBV_QPS_ERR);
    const auto events = b.events();
    ASSERT_EQ(events.size(), 1u);
    EXPECT_EQ(events[0].kind, DeviceEvent::Kind::kQpFatal);
    EXPECT_EQ(events[0].status.code(), Code::kProtocol);
    // Others go on.
    ASSERT_EQ(d.post_send(0, 8), 0);
    EXPECT_EQ(c.poll().size(), 1u);
    disconnect(a, b);
    disconnect(d, c);
  }
};

TEST_F(SoftnicBadPeer, AnImpossibleAcknowledgementEndsThatQueuePairOnly) { corrupt(0, 77); }
TEST_F(SoftnicBadPeer, AnImpossibleLengthEndsThatQueuePairOnly) { corrupt(6, 1); }
TEST_F(SoftnicBadPeer, AnUnknownOpcodeEndsThatQueuePairOnly) { corrupt(12, 99); }
TEST_F(SoftnicBadPeer, PairsOutsideOfThePeersMemoryEndThatQueuePairOnly) { corrupt(15, 2); }
TEST_F(SoftnicBadPeer, TooManyPairsEndThatQueuePairOnly) { corrupt(15, 200); }

}  // namespace
}  // namespace be
