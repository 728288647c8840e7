#include <thread>

#include "tests/unit/softnic/fixture.h"

namespace be {
namespace {

class SoftnicMemory : public testing::Test {
 protected:
  void SetUp() override { connect(a, b); }
  void TearDown() override { disconnect(a, b); }

  int send_private(End& end, ibv_mr* mr, void* address, uint32_t length, ibv_wr_opcode opcode,
                   int flags = IBV_SEND_SIGNALED) {
    ibv_sge entry{.addr = reinterpret_cast<uint64_t>(address), .length = length, .lkey = mr->lkey};
    ibv_send_wr request{};
    request.opcode = opcode;
    request.send_flags = static_cast<unsigned>(flags);
    request.sg_list = &entry;
    request.num_sge = 1;
    request.wr.rdma.remote_addr = reinterpret_cast<uint64_t>(b.memory.data());
    request.wr.rdma.rkey = b.mr->rkey;
    return end.post(request);
  }

  End a;
  End b;
};

TEST_F(SoftnicMemory, PrivateMemoryIsASourceOfWritesAndIsStagedForSends) {
  std::vector<uint8_t> mine(3000, 9);
  ibv_mr* mr = a.device->register_memory(mine.data(), mine.size(), kAllAccess, {}).value();
  ASSERT_EQ(send_private(a, mr, mine.data(), 3000, IBV_WR_RDMA_WRITE), 0);
  EXPECT_EQ(b.memory.data()[2999], 9);
  ASSERT_EQ(b.post_recv(4096, 4096), 0);
  ASSERT_EQ(send_private(a, mr, mine.data(), 3000, IBV_WR_SEND), 0);
  std::fill(mine.begin(), mine.end(), uint8_t{1});  // it was copied when posted
  ASSERT_EQ(b.poll().size(), 1u);
  EXPECT_EQ(b.memory.data()[4096], 9);
  EXPECT_EQ(b.memory.data()[4096 + 2999], 9);
  ASSERT_TRUE(a.device->deregister(mr).ok());
}

TEST_F(SoftnicMemory, PrivateMemoryIsNoTargetOfWrites) {
  std::vector<uint8_t> theirs(4096);
  ibv_mr* mr = b.device->register_memory(theirs.data(), theirs.size(), kAllAccess, {}).value();
  ibv_sge entry = a.sge(0, 8);
  ibv_send_wr request{};
  request.opcode = IBV_WR_RDMA_WRITE;
  request.sg_list = &entry;
  request.num_sge = 1;
  request.wr.rdma.remote_addr = reinterpret_cast<uint64_t>(theirs.data());
  request.wr.rdma.rkey = mr->rkey;
  ASSERT_EQ(a.post(request), 0);
  const auto sent = a.poll();
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].status, IBV_WC_REM_ACCESS_ERR);
  ASSERT_TRUE(b.device->deregister(mr).ok());
}

TEST(SoftnicStaging, IsBoundedAndReturnsWhenTheMessageIsAcknowledged) {
  const auto device = open_device({.staging_bytes = 8192});
  End a(device.get());
  End b;
  connect(a, b, {.rnr_retry = 7});
  std::vector<uint8_t> mine(4096, 9);
  ibv_mr* mr = a.device->register_memory(mine.data(), mine.size(), kAllAccess, {}).value();
  ibv_sge entry{.addr = reinterpret_cast<uint64_t>(mine.data()), .length = 4096, .lkey = mr->lkey};
  ibv_send_wr request{};
  request.opcode = IBV_WR_SEND;
  request.send_flags = IBV_SEND_SIGNALED;
  request.sg_list = &entry;
  request.num_sge = 1;
  for (int round = 0; round < 5; ++round) {
    ASSERT_EQ(a.post(request), 0);
    ASSERT_EQ(a.post(request), 0);
    ASSERT_EQ(a.post(request), ENOMEM);
    EXPECT_EQ(softnic_stats(*device).staging_refused, static_cast<uint64_t>(round) + 1);
    for (int i = 0; i < 2; ++i) ASSERT_EQ(b.post_recv(0, 4096), 0);
    ASSERT_EQ(b.poll().size(), 2u);
    b.poll();
    ASSERT_EQ(a.poll().size(), 2u);
  }
  ASSERT_TRUE(a.device->deregister(mr).ok());
  disconnect(a, b);
}

TEST(SoftnicStaging, ServesMemoryThatWasSharedOnlyAfterConnecting) {
  End b;
  const auto device = open_device();
  auto channel = std::move(device->create_event_channel()).value();
  ibv_cq* cq = device->create_cq(64, channel.get(), nullptr, nullptr).value();
  QueuePairOptions options;
  options.send_cq = options.recv_cq = cq;
  options.send_depth = options.recv_depth = 4;
  ibv_qp* qp = device->create_qp(options).value().qp;
  ASSERT_TRUE(device->connect_qp(qp, b.endpoint(), kToken, true, {}).ok());
  ASSERT_TRUE(
      b.device->connect_qp(b.qp, device->local_endpoint(qp).value(), kToken, false, {}).ok());
  std::vector<DeviceEvent> events;
  b.events();
  channel->take_events(events);
  ASSERT_EQ(events.size(), 1u);
  ASSERT_TRUE(events[0].status.ok());
  SharedMemory late(1 << 20);
  ibv_mr* mr =
      device->register_memory(late.data(), late.size(), kAllAccess, late.backing()).value();
  std::memset(late.data(), 6, 4096);
  ASSERT_EQ(b.post_recv(0, 4096), 0);
  ibv_sge entry{.addr = reinterpret_cast<uint64_t>(late.data()), .length = 4096, .lkey = mr->lkey};
  ibv_send_wr request{};
  request.opcode = IBV_WR_SEND;
  request.sg_list = &entry;
  request.num_sge = 1;
  ibv_send_wr* bad = nullptr;
  ASSERT_EQ(ibv_post_send(qp, &request, &bad), 0);
  const auto received = b.poll();
  ASSERT_EQ(received.size(), 1u);
  EXPECT_EQ(received[0].status, IBV_WC_SUCCESS);
  EXPECT_EQ(b.memory.data()[4095], 6);
  EXPECT_TRUE(device->retire_qp(qp).ok());
  b.retire();
  ASSERT_TRUE(device->deregister(mr).ok());
  ASSERT_TRUE(device->destroy_cq(cq).ok());
}

TEST(SoftnicRegistration, KeysOfRegionsThatAreGoneAreRefused) {
  const auto device = open_device();
  std::vector<uint8_t> memory(4096);
  ibv_mr* first = device->register_memory(memory.data(), 4096, kAllAccess, {}).value();
  const uint32_t key = first->lkey;
  ASSERT_TRUE(device->deregister(first).ok());
  ibv_mr* second = device->register_memory(memory.data(), 4096, kAllAccess, {}).value();
  EXPECT_NE(second->lkey, key);
  ASSERT_TRUE(device->deregister(second).ok());
  EXPECT_FALSE(device->register_memory(nullptr, 4096, kAllAccess, {}).ok());
  EXPECT_FALSE(device->register_memory(memory.data(), 0, kAllAccess, {}).ok());
  EXPECT_FALSE(device->register_memory(memory.data(), SIZE_MAX, kAllAccess, {}).ok());
}

TEST(SoftnicRegistration, AnyThreadMayRegister) {
  const auto device = open_device();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&device] {
      std::vector<uint8_t> memory(4096);
      for (int i = 0; i < 1000; ++i) {
        auto region = device->register_memory(memory.data(), 4096, kAllAccess, {});
        ASSERT_TRUE(region.ok());
        ASSERT_TRUE(device->deregister(region.value()).ok());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace be
