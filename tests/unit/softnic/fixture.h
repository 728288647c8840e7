// What the softnic tests share: memory behind a memfd, ends of a connection, and polling.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "be/softnic/softnic_device.h"

namespace be {

inline constexpr int kAllAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
inline constexpr uint8_t kToken[16] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};

// A sealed memfd, mapped and registered, as a pool would have it.
class SharedMemory {
 public:
  explicit SharedMemory(size_t bytes) : size_(bytes) {
    fd_ = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    EXPECT_EQ(ftruncate(fd_, static_cast<off_t>(bytes)), 0);
    EXPECT_EQ(fcntl(fd_, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    data_ = static_cast<uint8_t*>(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0));
  }
  ~SharedMemory() {
    munmap(data_, size_);
    ::close(fd_);
  }
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  uint8_t* data() { return data_; }
  size_t size() const { return size_; }
  Backing backing(uint64_t offset = 0) const { return {.fd = fd_, .offset = offset}; }

 private:
  int fd_;
  size_t size_;
  uint8_t* data_;
};

inline std::unique_ptr<Device> open_device(const SoftnicOptions& options = {}) {
  auto device = open_softnic(options);
  EXPECT_TRUE(device.ok()) << device.status().to_string();
  return std::move(device).value();
}

// One end: a device (its own or a given one), a channel, a CQ, registered memory and one QP.
class End {
 public:
  explicit End(Device* shared = nullptr, QueuePairOptions options = {}, uint32_t entries = 256)
      : memory(size_t{8} << 20) {
    if (shared == nullptr) owned_ = open_device();
    device = shared ? shared : owned_.get();
    channel = std::move(device->create_event_channel()).value();
    cq = device->create_cq(entries, channel.get(), nullptr, nullptr).value();
    mr =
        device->register_memory(memory.data(), memory.size(), kAllAccess, memory.backing()).value();
    if (options.send_depth == 0) options.send_depth = 16;
    if (options.recv_depth == 0) options.recv_depth = 16;
    if (options.max_send_sge < 4) options.max_send_sge = options.max_recv_sge = 4;
    if (options.max_inline_bytes == 0) options.max_inline_bytes = 200;
    options.send_cq = options.recv_cq = cq;
    auto made = device->create_qp(options);
    EXPECT_TRUE(made.ok()) << made.status().to_string();
    qp = made.value().qp;
  }

  ~End() {
    if (qp != nullptr) retire();
    EXPECT_TRUE(device->deregister(mr).ok());
    EXPECT_TRUE(device->destroy_cq(cq).ok());
    channel.reset();
  }
  End(const End&) = delete;
  End& operator=(const End&) = delete;

  QuiesceToken retire() {
    auto token = device->retire_qp(std::exchange(qp, nullptr));
    EXPECT_TRUE(token.ok());
    return token.value();
  }

  EndpointBlob endpoint() { return device->local_endpoint(qp).value(); }
  ibv_sge sge(size_t offset, uint32_t length) {
    return {.addr = reinterpret_cast<uint64_t>(memory.data() + offset),
            .length = length,
            .lkey = mr->lkey};
  }

  int post_recv(size_t offset, uint32_t length, uint64_t wr_id = 0) {
    ibv_sge entry = sge(offset, length);
    ibv_recv_wr request{};
    request.wr_id = wr_id;
    request.sg_list = &entry;
    request.num_sge = 1;
    ibv_recv_wr* bad = nullptr;
    return ibv_post_recv(qp, &request, &bad);
  }

  // A SEND of bytes already in our memory.
  int post_send(size_t offset, uint32_t length, uint64_t wr_id = 0, int flags = IBV_SEND_SIGNALED) {
    ibv_sge entry = sge(offset, length);
    ibv_send_wr request{};
    request.wr_id = wr_id;
    request.opcode = IBV_WR_SEND;
    request.send_flags = static_cast<unsigned>(flags);
    request.sg_list = &entry;
    request.num_sge = 1;
    return post(request);
  }

  int post_write(size_t offset, uint32_t length, End& to, size_t to_offset, uint64_t wr_id = 0,
                 ibv_wr_opcode opcode = IBV_WR_RDMA_WRITE, uint32_t imm = 0,
                 int flags = IBV_SEND_SIGNALED) {
    ibv_sge entry = sge(offset, length);
    ibv_send_wr request{};
    request.wr_id = wr_id;
    request.opcode = opcode;
    request.send_flags = static_cast<unsigned>(flags);
    request.imm_data = imm;
    request.sg_list = &entry;
    request.num_sge = 1;
    request.wr.rdma.remote_addr = reinterpret_cast<uint64_t>(to.memory.data() + to_offset);
    request.wr.rdma.rkey = to.mr->rkey;
    return post(request);
  }

  int post(ibv_send_wr& request) {
    ibv_send_wr* bad = nullptr;
    return ibv_post_send(qp, &request, &bad);
  }

  std::vector<ibv_wc> poll(int count = 64) {
    std::vector<ibv_wc> out(static_cast<size_t>(count));
    const int polled = ibv_poll_cq(cq, count, out.data());
    EXPECT_GE(polled, 0);
    out.resize(static_cast<size_t>(polled));
    return out;
  }

  // What is there without waiting for anybody.
  std::vector<DeviceEvent> events() {
    std::vector<DeviceEvent> out;
    channel->take_events(out);
    return out;
  }
  bool readable(int timeout_ms = 0) const {
    pollfd entry{.fd = channel->fd(), .events = POLLIN, .revents = 0};
    return ::poll(&entry, 1, timeout_ms) > 0;
  }

  std::unique_ptr<Device> owned_;
  Device* device = nullptr;
  SharedMemory memory;
  std::unique_ptr<EventChannel> channel;
  ibv_cq* cq = nullptr;
  ibv_mr* mr = nullptr;
  ibv_qp* qp = nullptr;
};

// Brings both to RTS; both ends are in this thread, so their events are taken in turns.
inline void connect(End& a, End& b, const ConnectOptions& options = {}) {
  ASSERT_TRUE(a.device->connect_qp(a.qp, b.endpoint(), kToken, true, options).ok());
  ASSERT_TRUE(b.device->connect_qp(b.qp, a.endpoint(), kToken, false, options).ok());
  int connected = 0;
  for (int turn = 0; turn < 10 && connected < 2; ++turn) {
    for (End* end : {&a, &b}) {
      for (const DeviceEvent& event : end->events()) {
        ASSERT_EQ(event.kind, DeviceEvent::Kind::kConnected);
        ASSERT_TRUE(event.status.ok()) << event.status.to_string();
        ++connected;
      }
    }
  }
  ASSERT_EQ(connected, 2);
}

// Retires both; whoever is first waits for the other.
inline void disconnect(End& a, End& b) {
  const QuiesceToken token = a.retire();
  b.retire();
  if (token == kQuiescedNow) return;
  const std::vector<DeviceEvent> events = a.events();
  ASSERT_EQ(events.size(), 1u);
  ASSERT_EQ(events[0].kind, DeviceEvent::Kind::kQuiesced);
  ASSERT_EQ(events[0].token, token);
}

}  // namespace be
