// Many QPs on one CQ: ready bits instead of direct polling; shared receive queues.
#include <map>
#include <set>

#include "tests/unit/softnic/fixture.h"

namespace be {
namespace {

// A server with `count` QPs on its one CQ, each connected to a QP of one client.
class Star {
 public:
  explicit Star(uint32_t count, uint32_t srq_entries = 0) {
    if (srq_entries > 0) srq = server.device->create_srq(srq_entries, 1).value();
    for (uint32_t i = 0; i < count; ++i) {
      QueuePairOptions options;
      options.send_depth = options.recv_depth = 4;
      options.send_cq = options.recv_cq = client.cq;
      client_qps.push_back(client.device->create_qp(options).value().qp);
      options.send_cq = options.recv_cq = server.cq;
      options.srq = srq;
      server_qps.push_back(server.device->create_qp(options).value().qp);
      EXPECT_TRUE(client.device
                      ->connect_qp(client_qps[i],
                                   server.device->local_endpoint(server_qps[i]).value(), kToken,
                                   true, {.rnr_retry = 7})
                      .ok());
      EXPECT_TRUE(server.device
                      ->connect_qp(server_qps[i],
                                   client.device->local_endpoint(client_qps[i]).value(), kToken,
                                   false, {.rnr_retry = 7})
                      .ok());
    }
    uint32_t connected = 0;
    for (int i = 0; i < 20 && connected < 2 * count; ++i) {
      for (End* end : {&server, &client}) {
        for (const DeviceEvent& event : end->events()) {
          connected += event.kind == DeviceEvent::Kind::kConnected && event.status.ok();
        }
      }
    }
    EXPECT_EQ(connected, 2 * count);
  }

  ~Star() {
    size_t open = 0;
    for (ibv_qp* qp : client_qps) open += client.device->retire_qp(qp).value() != kQuiescedNow;
    for (ibv_qp* qp : server_qps) EXPECT_TRUE(server.device->retire_qp(qp).ok());
    EXPECT_EQ(client.events().size(), open);
    if (srq != nullptr) {
      EXPECT_TRUE(server.device->destroy_srq(srq).ok());
    }
  }

  void post_recv(ibv_qp* qp, uint64_t wr_id) {
    ibv_sge entry = server.sge(0, 64);
    ibv_recv_wr request{};
    request.wr_id = wr_id;
    request.sg_list = &entry;
    request.num_sge = 1;
    ibv_recv_wr* bad = nullptr;
    ASSERT_EQ(srq ? ibv_post_srq_recv(srq, &request, &bad) : ibv_post_recv(qp, &request, &bad), 0);
  }
  void send(size_t i) {
    ibv_sge entry = client.sge(0, 8);
    ibv_send_wr request{};
    request.wr_id = i;
    request.opcode = IBV_WR_SEND;
    request.send_flags = IBV_SEND_SIGNALED;
    request.sg_list = &entry;
    request.num_sge = 1;
    ibv_send_wr* bad = nullptr;
    ASSERT_EQ(ibv_post_send(client_qps[i], &request, &bad), 0);
  }

  End client;
  End server;
  ibv_srq* srq = nullptr;
  std::vector<ibv_qp*> client_qps;
  std::vector<ibv_qp*> server_qps;
};

TEST(SoftnicManyQueuePairs, EachMessageIsFoundByItsReadyBit) {
  constexpr uint32_t kCount = 100;
  Star star(kCount);
  for (int round = 0; round < 3; ++round) {
    for (uint32_t i = 0; i < kCount; ++i) star.post_recv(star.server_qps[i], i);
    std::set<uint64_t> expected;
    for (size_t i = static_cast<size_t>(round); i < kCount; i += 3) {
      star.send(i);
      expected.insert(i);
    }
    std::set<uint64_t> found;
    for (int polls = 0; polls < 20; ++polls) {
      for (const ibv_wc& wc : star.server.poll(16)) {
        ASSERT_EQ(wc.status, IBV_WC_SUCCESS);
        EXPECT_EQ(wc.qp_num, star.server_qps[wc.wr_id]->qp_num);
        found.insert(wc.wr_id);
      }
    }
    EXPECT_EQ(found, expected);
    std::set<uint64_t> completed;
    for (int polls = 0; polls < 20; ++polls) {
      for (const ibv_wc& wc : star.client.poll(16)) completed.insert(wc.wr_id);
    }
    EXPECT_EQ(completed, expected);
    for (size_t i = 0; i < kCount; ++i) {  // use up the receives that are left
      if (expected.contains(i)) continue;
      star.send(i);
    }
    for (int polls = 0; polls < 20; ++polls) {
      star.server.poll(16);
      star.client.poll(16);
    }
  }
}

TEST(SoftnicManyQueuePairs, NoQueuePairStarvesBehindABusyOne) {
  constexpr uint32_t kCount = 20;
  Star star(kCount);
  for (uint32_t i = 0; i < kCount; ++i) {
    for (uint64_t k = 0; k < 4; ++k) star.post_recv(star.server_qps[i], i);
    for (int k = 0; k < 4; ++k) star.send(i);
  }
  std::map<uint64_t, int> seen;
  for (uint32_t polls = 0; polls < 4 * kCount; ++polls) {
    for (const ibv_wc& wc : star.server.poll(1)) ++seen[wc.wr_id];
  }
  EXPECT_EQ(seen.size(), kCount);
  for (const auto& [qp, count] : seen) EXPECT_EQ(count, 4) << qp;
}

TEST(SoftnicManyQueuePairs, ArmingSeesReadyBits) {
  Star star(20);
  star.post_recv(star.server_qps[7], 7);
  star.server.poll();
  ASSERT_EQ(ibv_req_notify_cq(star.server.cq, 0), 0);
  EXPECT_FALSE(star.server.readable());
  star.send(7);
  EXPECT_TRUE(star.server.readable());
  EXPECT_EQ(star.server.events().size(), 1u);
  ASSERT_EQ(ibv_req_notify_cq(star.server.cq, 0), 0);  // not polled yet
  EXPECT_TRUE(star.server.readable());
  EXPECT_EQ(star.server.events().size(), 1u);
  EXPECT_EQ(star.server.poll().size(), 1u);
}

TEST(SoftnicSharedReceiveQueue, ServesAllItsQueuePairsAndBlockedOnesGoOnWhenItIsRefilled) {
  constexpr uint32_t kCount = 12;
  Star star(kCount, 64);
  for (uint64_t i = 0; i < 5; ++i) star.post_recv(nullptr, i);
  for (uint32_t i = 0; i < kCount; ++i) star.send(i);
  size_t received = 0;
  for (int polls = 0; polls < 20; ++polls) received += star.server.poll(16).size();
  EXPECT_EQ(received, 5u);
  for (uint64_t i = 0; i < kCount; ++i) star.post_recv(nullptr, i);
  for (int polls = 0; polls < 20; ++polls) received += star.server.poll(16).size();
  EXPECT_EQ(received, kCount);
}

TEST(SoftnicSharedReceiveQueue, LastWqeIsReachedWhenItsQueuePairFails) {
  Star star(2, 64);
  ASSERT_TRUE(star.server.device->fail_qp(star.server_qps[0]).ok());
  const auto events = star.server.events();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].kind, DeviceEvent::Kind::kLastWqeReached);
  EXPECT_EQ(events[0].qp, star.server_qps[0]);
  star.client.events();
}

TEST(SoftnicLimits, QueuePairsAndCompletionQueuesAreBounded) {
  const auto device = open_device({.max_queue_pairs = 3});
  auto channel = std::move(device->create_event_channel()).value();
  ibv_cq* cq = device->create_cq(16, channel.get(), nullptr, nullptr).value();
  QueuePairOptions options;
  options.send_cq = options.recv_cq = cq;
  options.send_depth = options.recv_depth = 4;
  options.max_inline_bytes = 100000;
  std::vector<ibv_qp*> qps;
  for (int i = 0; i < 3; ++i) {
    const QueuePair made = device->create_qp(options).value();
    EXPECT_EQ(made.max_inline_bytes, device->limits().max_inline_bytes);
    qps.push_back(made.qp);
  }
  EXPECT_EQ(device->create_qp(options).status().code(), Code::kResourceExhausted);
  EXPECT_FALSE(device->destroy_cq(cq).ok());
  for (ibv_qp* qp : qps) EXPECT_EQ(device->retire_qp(qp).value(), kQuiescedNow);
  options.send_depth = device->limits().max_queue_depth + 1;
  EXPECT_FALSE(device->create_qp(options).ok());
  ASSERT_TRUE(device->destroy_cq(cq).ok());
}

}  // namespace
}  // namespace be
