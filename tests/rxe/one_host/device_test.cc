// The hardware device on the kernel's Soft-RoCE: two queue pairs of one process, verbs only.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "be/verbs/errors.h"
#include "be/verbs/hardware_device.h"

namespace be {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr size_t kMemoryBytes = size_t{4} << 20;
constexpr uint32_t kDepth = 16;
constexpr int kPatience_ms = 20'000;  // an emulated machine is slow
constexpr uint8_t kToken[16] = {};

template <typename T>
T need(Result<T> result) {
  if (!result.ok()) throw std::runtime_error(result.status().to_string());
  return std::move(result).value();
}

void need(const Status& status) {
  if (!status.ok()) throw std::runtime_error(status.to_string());
}

// Two connected queue pairs on one completion queue; memory as the pool has it: a sealed memfd.
class SoftRoce : public ::testing::Test {
 protected:
  void SetUp() override {
    std::vector<std::unique_ptr<Device>> devices = open_hardware_devices({}, kMemoryBytes);
    ASSERT_EQ(devices.size(), 1u) << list_hardware_devices(kMemoryBytes)[0].why;
    device_ = std::move(devices[0]);
    const int fd = ::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    ASSERT_EQ(::ftruncate(fd, kMemoryBytes), 0);
    memory_ = static_cast<uint8_t*>(
        ::mmap(nullptr, kMemoryBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
    ::close(fd);
    region_ = need(device_->register_memory(
        memory_, kMemoryBytes,
        IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ, {}));
    channel_ = need(device_->create_event_channel());
    domain_ = need(device_->create_thread_domain());
    cq_ = need(device_->create_cq(256, channel_.get(), this, domain_));
    for (ibv_qp*& qp : qps_) {
      QueuePairOptions options;
      options.send_cq = options.recv_cq = cq_;
      options.send_depth = options.recv_depth = kDepth;
      options.max_send_sge = 4;
      options.max_inline_bytes = 256;
      options.user = this;
      options.thread_domain = domain_;
      const QueuePair made = need(device_->create_qp(options));
      qp = made.qp;
      EXPECT_GE(made.max_inline_bytes, 64u);
    }
  }

  void TearDown() override {
    for (ibv_qp* qp : qps_) {
      if (qp == nullptr) continue;
      EXPECT_EQ(need(device_->retire_qp(qp)), kQuiescedNow);
    }
    EXPECT_TRUE(device_->destroy_cq(cq_).ok());
    device_->destroy_thread_domain(domain_);
    channel_.reset();
    EXPECT_TRUE(device_->deregister(region_).ok());
    device_.reset();
    ::munmap(memory_, kMemoryBytes);
  }

  void connect() {
    const EndpointBlob ends[] = {need(device_->local_endpoint(qps_[0])),
                                 need(device_->local_endpoint(qps_[1]))};
    for (int i = 0; i < 2; ++i) {
      need(device_->reachable(ends[1 - i]));
      need(device_->connect_qp(qps_[i], ends[1 - i], kToken, i == 0, {}));
    }
    std::vector<ibv_qp*> connected;
    for (const DeviceEvent& event : wait_for_events(2)) {
      EXPECT_EQ(event.kind, DeviceEvent::Kind::kConnected);
      EXPECT_TRUE(event.status.ok());
      connected.push_back(event.qp);
    }
    EXPECT_THAT(connected, ElementsAre(qps_[0], qps_[1]));
  }

  std::vector<DeviceEvent> wait_for_events(size_t count) {
    std::vector<DeviceEvent> events;
    while (events.size() < count) {
      pollfd waiting = {channel_->fd(), POLLIN, 0};
      if (::poll(&waiting, 1, kPatience_ms) != 1) throw std::runtime_error("no event came");
      channel_->take_events(events);
    }
    return events;
  }

  std::vector<ibv_wc> wait_for_completions(size_t count) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(kPatience_ms);
    std::vector<ibv_wc> all;
    while (all.size() < count) {
      ibv_wc one;
      if (ibv_poll_cq(cq_, 1, &one) == 1) all.push_back(one);
      if (std::chrono::steady_clock::now() > end) throw std::runtime_error("no completion came");
    }
    return all;
  }

  void receive(int end, uint64_t id, size_t offset, uint32_t bytes) {
    ibv_sge sge = {reinterpret_cast<uintptr_t>(memory_ + offset), bytes, region_->lkey};
    ibv_recv_wr wr{.wr_id = id, .next = nullptr, .sg_list = &sge, .num_sge = 1};
    ibv_recv_wr* bad = nullptr;
    ASSERT_EQ(ibv_post_recv(qps_[end], &wr, &bad), 0);
  }

  ibv_send_wr request(uint64_t id, ibv_wr_opcode opcode, size_t offset, uint32_t bytes) {
    sge_ = {reinterpret_cast<uintptr_t>(memory_ + offset), bytes, region_->lkey};
    ibv_send_wr wr{};
    wr.wr_id = id;
    wr.sg_list = &sge_;
    wr.num_sge = 1;
    wr.opcode = opcode;
    wr.send_flags = IBV_SEND_SIGNALED;
    return wr;
  }

  void post(int end, ibv_send_wr wr) {
    ibv_send_wr* bad = nullptr;
    ASSERT_EQ(ibv_post_send(qps_[end], &wr, &bad), 0);
  }

  std::unique_ptr<Device> device_;
  uint8_t* memory_ = nullptr;
  ibv_mr* region_ = nullptr;
  std::unique_ptr<EventChannel> channel_;
  ibv_td* domain_ = nullptr;
  ibv_cq* cq_ = nullptr;
  ibv_qp* qps_[2] = {};
  ibv_sge sge_{};
};

TEST_F(SoftRoce, IsChosenByItsRoutableAddress) {
  const std::vector<FoundDevice> found = list_hardware_devices(kMemoryBytes);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].name, "rxe0");
  EXPECT_TRUE(found[0].usable) << found[0].why;
  EXPECT_THAT(found[0].why, HasSubstr(std::string("RoCEv2 GID ::ffff:") +
                                      ::getenv("RXE_ADDRESS_0") + " (index 1), MTU 4096"));
}

TEST_F(SoftRoce, HasNoThreadDomainsAndServesWithoutThem) { EXPECT_EQ(domain_, nullptr); }

TEST_F(SoftRoce, ASendArrivesInItsReceive) {
  connect();
  receive(1, 7, 0, 4096);
  std::memset(memory_ + 8192, 0xab, 3000);
  post(0, request(8, IBV_WR_SEND, 8192, 3000));
  for (const ibv_wc& completion : wait_for_completions(2)) {
    EXPECT_EQ(completion.status, IBV_WC_SUCCESS) << completion_error(completion, "b").to_string();
    if (completion.wr_id == 7) {
      EXPECT_EQ(completion.byte_len, 3000u);
    }
  }
  EXPECT_EQ(std::memcmp(memory_, memory_ + 8192, 3000), 0);
}

TEST_F(SoftRoce, AnInlineSendNeedsNoKey) {
  connect();
  receive(1, 7, 0, 4096);
  ibv_send_wr wr = request(8, IBV_WR_SEND, 8192, 64);
  std::memset(memory_ + 8192, 0xcd, 64);
  sge_.lkey = 0;
  wr.send_flags |= IBV_SEND_INLINE;
  post(0, wr);
  std::memset(memory_ + 8192, 0, 64);  // posted is copied
  for (const ibv_wc& completion : wait_for_completions(2)) {
    EXPECT_EQ(completion.status, IBV_WC_SUCCESS);
  }
  EXPECT_EQ(memory_[63], 0xcd);
}

TEST_F(SoftRoce, WritesAreThereWhenTheLastOnesImmediateArrives) {
  connect();
  constexpr uint32_t kFragment = 8192;
  constexpr int kFragments = 12;
  uint8_t* const source = memory_ + (2 << 20);
  for (size_t i = 0; i < size_t{kFragment} * kFragments; ++i) {
    source[i] = static_cast<uint8_t>(i * 7 + i / 251);
  }
  receive(1, 7, kMemoryBytes - 64, 64);
  for (int i = 0; i < kFragments; ++i) {
    const bool last = i == kFragments - 1;
    ibv_send_wr wr = request(100 + i, last ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE,
                             (2 << 20) + size_t{kFragment} * i, kFragment);
    wr.send_flags = last ? IBV_SEND_SIGNALED : 0;
    wr.imm_data = 0x11223344;
    wr.wr.rdma.remote_addr = reinterpret_cast<uintptr_t>(memory_) + size_t{kFragment} * i;
    wr.wr.rdma.rkey = region_->rkey;
    post(0, wr);
  }
  for (const ibv_wc& completion : wait_for_completions(2)) {
    ASSERT_EQ(completion.status, IBV_WC_SUCCESS) << completion_error(completion, "b").to_string();
    if (completion.wr_id != 7) continue;
    EXPECT_EQ(completion.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
    EXPECT_EQ(completion.imm_data, 0x11223344u);
    EXPECT_EQ(std::memcmp(memory_, source, size_t{kFragment} * kFragments), 0);
  }
}

void pause_up_to_300us(std::minstd_rand& random) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::microseconds(random() % 300);
  while (std::chrono::steady_clock::now() < until) {
  }
}

// The loop of an I/O thread, and somebody who sends at any moment of it.
TEST_F(SoftRoce, ACompletionBetweenTheLastPollAndTheArmingWakesOrIsPolled) {
  connect();
  constexpr int kRounds = 300;
  std::atomic<int> begun = 0;
  std::thread sender([&] {
    std::minstd_rand random(1);
    for (int round = 1; round <= kRounds; ++round) {
      while (begun < round) std::this_thread::yield();
      pause_up_to_300us(random);
      post(0, request(8, IBV_WR_SEND, 8192, 16));
    }
  });
  std::minstd_rand random(2);
  int polled_after_arming = 0;
  for (int round = 1; round <= kRounds; ++round) {
    receive(1, 7, 0, 4096);
    begun = round;
    int taken = 0;
    bool armed = false;
    while (taken < 2) {
      ibv_wc completions[2];
      const int count = ibv_poll_cq(cq_, 2, completions);
      taken += count;
      if (count > 0) {
        if (armed) ++polled_after_arming;
      } else if (!armed) {
        pause_up_to_300us(random);
        EXPECT_EQ(ibv_req_notify_cq(cq_, 0), 0);
        armed = true;  // and look once more
      } else {
        EXPECT_EQ(wait_for_events(1).at(0).kind, DeviceEvent::Kind::kCompletion);
        armed = false;
      }
    }
  }
  sender.join();
  EXPECT_GT(polled_after_arming, 0) << "the moment was never hit";
}

TEST_F(SoftRoce, AWrongKeyEndsBothQueuePairsAndEveryWorkRequestIsFlushed) {
  connect();
  for (uint64_t id = 0; id < 4; ++id) receive(0, id, 0, 64);
  ibv_send_wr wr = request(10, IBV_WR_RDMA_WRITE, 8192, 64);
  wr.wr.rdma.remote_addr = reinterpret_cast<uintptr_t>(memory_);
  wr.wr.rdma.rkey = region_->rkey + 0x100;
  post(0, wr);
  post(0, request(11, IBV_WR_SEND, 8192, 64));
  const std::vector<ibv_wc> completions = wait_for_completions(6);
  size_t flushed = 0;
  for (const ibv_wc& completion : completions) {
    if (completion.wr_id == 10) {
      EXPECT_EQ(completion.status, IBV_WC_REM_ACCESS_ERR);
    } else {
      EXPECT_EQ(completion.status, IBV_WC_WR_FLUSH_ERR);
      ++flushed;
    }
  }
  EXPECT_EQ(flushed, 5u);
  EXPECT_EQ(device_->qp_state(qps_[0]), IBV_QPS_ERR);
}

TEST_F(SoftRoce, AFailedQueuePairFlushesWhatWasPosted) {
  connect();
  for (uint64_t id = 0; id < kDepth; ++id) receive(0, id, 0, 64);
  need(device_->fail_qp(qps_[0]));
  for (const ibv_wc& completion : wait_for_completions(kDepth)) {
    EXPECT_EQ(completion.status, IBV_WC_WR_FLUSH_ERR);
  }
}

TEST_F(SoftRoce, ASendWithoutAReceiveIsAnErrorAtOnce) {
  connect();
  post(0, request(8, IBV_WR_SEND, 8192, 16));
  EXPECT_EQ(wait_for_completions(1)[0].status, IBV_WC_RNR_RETRY_EXC_ERR);
}

TEST_F(SoftRoce, ARetiredQueuePairMayLeaveWorkAndEventsBehind) {
  connect();
  for (uint64_t id = 0; id < kDepth; ++id) receive(1, id, 0, 64);
  ASSERT_EQ(ibv_req_notify_cq(cq_, 0), 0);
  for (int i = 0; i < 8; ++i) post(0, request(8, IBV_WR_SEND, 8192, 16));
  EXPECT_EQ(need(device_->retire_qp(std::exchange(qps_[1], nullptr))), kQuiescedNow);
}

}  // namespace
}  // namespace be
