// The simulated RNIC by itself: two hosts, a queue pair each, and verbs.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <vector>

#include "be/sim/device.h"

namespace be::sim {
namespace {

constexpr uint8_t kToken[16] = {1, 2, 3};
constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;

// One host with a device, a completion queue, a queue pair and 16 KiB of registered memory.
struct Station {
  Station(Simulation& simulation, Internet& internet, Fabric& fabric, uint32_t index)
      : host(simulation, internet, index, {}), device(host, fabric), memory(16384) {
    channel = device.create_event_channel().value();
    cq = device.create_cq(64, channel.get(), nullptr, nullptr).value();
    region = device.register_memory(memory.data(), memory.size(), kAccess, {}).value();
    QueuePairOptions options;
    options.send_cq = options.recv_cq = cq;
    options.send_depth = options.recv_depth = 8;
    qp = device.create_qp(options).value().qp;
  }
  void end() {
    if (qp != nullptr) token = device.retire_qp(qp).value();
    qp = nullptr;
  }
  ~Station() {
    EXPECT_TRUE(device.destroy_cq(cq).ok());
    channel.reset();
    EXPECT_TRUE(device.deregister(region).ok());
  }

  int post(ibv_wr_opcode opcode, uint32_t bytes, Station* to = nullptr, uint64_t wr_id = 1) {
    ibv_sge sge = {reinterpret_cast<uintptr_t>(memory.data()), bytes, region->lkey};
    ibv_send_wr request{};
    request.wr_id = wr_id;
    request.sg_list = &sge;
    request.num_sge = 1;
    request.opcode = opcode;
    request.send_flags = IBV_SEND_SIGNALED;
    if (to != nullptr) {
      request.wr.rdma.remote_addr = reinterpret_cast<uintptr_t>(to->memory.data());
      request.wr.rdma.rkey = to->region->rkey;
    }
    ibv_send_wr* bad = nullptr;
    return ibv_post_send(qp, &request, &bad);
  }
  int receive(uint64_t wr_id = 2) {
    ibv_sge sge = {reinterpret_cast<uintptr_t>(memory.data()), 8192, region->lkey};
    ibv_recv_wr request{};
    request.wr_id = wr_id;
    request.sg_list = &sge;
    request.num_sge = 1;
    ibv_recv_wr* bad = nullptr;
    return ibv_post_recv(qp, &request, &bad);
  }
  std::vector<ibv_wc> poll() {
    ibv_wc completions[16];
    const int count = ibv_poll_cq(cq, 16, completions);
    return {completions, completions + count};
  }
  std::vector<DeviceEvent> events() {
    std::vector<DeviceEvent> taken;
    channel->take_events(taken);
    return taken;
  }

  Host host;
  RnicDevice device;
  std::vector<uint8_t> memory;
  std::unique_ptr<EventChannel> channel;
  ibv_cq* cq = nullptr;
  ibv_mr* region = nullptr;
  ibv_qp* qp = nullptr;
  QuiesceToken token = 0;
};

class Rnic : public testing::Test {
 protected:
  void make(FabricOptions options, uint8_t rnr_retry = 0) {
    fabric = std::make_unique<Fabric>(simulation, options);
    a = std::make_unique<Station>(simulation, internet, *fabric, 0);
    b = std::make_unique<Station>(simulation, internet, *fabric, 1);
    ConnectOptions connect;
    connect.rnr_retry = rnr_retry;
    ASSERT_TRUE(
        a->device.connect_qp(a->qp, b->device.local_endpoint(b->qp).value(), kToken, true, connect)
            .ok());
    ASSERT_TRUE(
        b->device.connect_qp(b->qp, a->device.local_endpoint(a->qp).value(), kToken, false, connect)
            .ok());
    run(1ms);
    ASSERT_EQ(a->events().at(0).kind, DeviceEvent::Kind::kConnected);
    ASSERT_EQ(b->events().at(0).kind, DeviceEvent::Kind::kConnected);
  }
  void TearDown() override {
    for (Station* station : {a.get(), b.get()}) {
      station->host.go_on();
      station->end();
    }
    run(1s);
    a.reset();
    b.reset();
    EXPECT_EQ(simulation.violation(), expected_violation);
  }
  void run(Nanoseconds time) {
    simulation.run_until([] { return false; }, simulation.now() + time);
  }

  Simulation simulation{1};
  Internet internet;
  std::unique_ptr<Fabric> fabric;
  std::unique_ptr<Station> a;
  std::unique_ptr<Station> b;
  std::string expected_violation;
};

FabricOptions by_peer() {
  FabricOptions options;
  options.touch = Touch::kByPeer;
  return options;
}

TEST_F(Rnic, SendArrivesInPacketsAndBothEndsComplete) {
  make({});
  ASSERT_EQ(b->receive(7), 0);
  for (size_t i = 0; i < 5000; ++i) a->memory[i] = static_cast<uint8_t>(i * 7);
  ASSERT_EQ(a->post(IBV_WR_SEND, 5000, nullptr, 9), 0);
  EXPECT_TRUE(a->poll().empty()) << "nothing completes as it is posted";
  run(1ms);
  const auto received = b->poll();
  ASSERT_EQ(received.size(), 1u);
  EXPECT_EQ(received[0].wr_id, 7u);
  EXPECT_EQ(received[0].byte_len, 5000u);
  EXPECT_EQ(std::memcmp(a->memory.data(), b->memory.data(), 5000), 0);
  const auto sent = a->poll();
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].wr_id, 9u);
}

TEST_F(Rnic, WriteBecomesVisiblePacketByPacket) {
  FabricOptions slow;
  slow.picoseconds_per_byte = 1'000'000;  // a packet of 1024 bytes a millisecond
  make(slow);
  std::memset(a->memory.data(), 0xaa, 4096);
  ASSERT_EQ(a->post(IBV_WR_RDMA_WRITE, 4096, b.get()), 0);
  run(2500us);
  EXPECT_EQ(b->memory[1023], 0xaa);
  EXPECT_EQ(b->memory[4095], 0);
  run(10ms);
  EXPECT_EQ(b->memory[4095], 0xaa);
  EXPECT_EQ(a->poll().size(), 1u);
}

TEST_F(Rnic, ArmedQueueRaisesAnEventForWhatComesAfterAndNotForWhatIsThere) {
  make({});
  ASSERT_EQ(b->receive(), 0);
  ASSERT_EQ(b->receive(), 0);
  ASSERT_EQ(a->post(IBV_WR_SEND, 10), 0);
  run(1ms);
  ASSERT_EQ(ibv_req_notify_cq(b->cq, 0), 0);
  run(1ms);
  EXPECT_TRUE(b->events().empty());
  ASSERT_EQ(a->post(IBV_WR_SEND, 10), 0);
  run(1ms);
  const auto events = b->events();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].kind, DeviceEvent::Kind::kCompletion);
  EXPECT_EQ(b->poll().size(), 2u);
}

TEST_F(Rnic, SendWithoutAReceiveIsAViolationWhenTheSenderDoesNotRetry) {
  make({});
  ASSERT_EQ(a->post(IBV_WR_SEND, 10), 0);
  run(1ms);
  EXPECT_NE(simulation.violation().find("no receive is posted"), std::string::npos);
  expected_violation = simulation.violation();
}

TEST_F(Rnic, SendThatRetriesWaitsForAReceive) {
  make({}, 7);
  ASSERT_EQ(a->post(IBV_WR_SEND, 10), 0);
  run(5ms);
  EXPECT_TRUE(a->poll().empty());
  ASSERT_EQ(b->receive(), 0);
  run(5ms);
  EXPECT_EQ(b->poll().size(), 1u);
  EXPECT_EQ(a->poll().size(), 1u);
}

TEST_F(Rnic, NobodyAcknowledgesADestroyedQueuePairsPeerAndItsRetriesRunOut) {
  make({});
  ASSERT_EQ(b->receive(), 0);
  b->end();
  EXPECT_EQ(b->token, kQuiescedNow);
  ASSERT_EQ(a->post(IBV_WR_SEND, 10), 0);
  run(1s);
  const auto failed = a->poll();
  ASSERT_EQ(failed.size(), 1u);
  EXPECT_EQ(failed[0].status, IBV_WC_RETRY_EXC_ERR);
}

TEST_F(Rnic, StoppedPeerGoesOnWritingUntilItHasConfirmedTheReset) {
  FabricOptions slow = by_peer();
  slow.picoseconds_per_byte = 1'000'000;
  make(slow);
  std::memset(a->memory.data(), 0xaa, 8192);
  ASSERT_EQ(a->post(IBV_WR_RDMA_WRITE, 8192, b.get()), 0);
  run(2500us);
  a->host.stop();
  run(5ms);
  b->end();  // the peer is in the middle of a copy into our memory
  EXPECT_NE(b->token, kQuiescedNow);
  b->memory[8191] = 1;
  run(1s);
  EXPECT_TRUE(b->events().empty()) << "nothing is promised while it is stopped";
  a->host.go_on();
  run(1s);
  const auto events = b->events();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].kind, DeviceEvent::Kind::kQuiesced);
  EXPECT_EQ(events[0].token, b->token);
  const std::vector<uint8_t> then = b->memory;
  run(1s);
  EXPECT_EQ(b->memory, then);
}

TEST_F(Rnic, DeathOfThePeerIsAnEventAndQuiet) {
  make(by_peer());
  a->host.kill();
  a->device.on_host_killed();
  run(1ms);
  const auto events = b->events();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].kind, DeviceEvent::Kind::kQpFatal);
  b->end();
  EXPECT_EQ(b->token, kQuiescedNow);
  a->host.wall();
  a->device.on_host_walled();
}

TEST_F(Rnic, OrderedWorkRequestErrorFlushesWhatIsBehindIt) {
  make({});
  ASSERT_EQ(b->receive(), 0);
  ASSERT_EQ(b->receive(), 0);
  a->device.fail_after(2);
  for (uint64_t i = 1; i <= 3; ++i) ASSERT_EQ(a->post(IBV_WR_SEND, 10, nullptr, i), 0);
  run(1ms);
  const auto completions = a->poll();
  ASSERT_EQ(completions.size(), 3u);
  EXPECT_EQ(completions[0].status, IBV_WC_SUCCESS);
  EXPECT_EQ(completions[1].status, IBV_WC_LOC_QP_OP_ERR);
  EXPECT_EQ(completions[2].status, IBV_WC_WR_FLUSH_ERR);
}

}  // namespace
}  // namespace be::sim
