// A queue pair that says what it likes to the engine at its other end, and hears what it answers.
#pragma once

#include <arpa/inet.h>

#include <string>
#include <utility>
#include <vector>

#include "be/engine/engine_options.h"
#include "be/engine/frame.h"
#include "be/softnic/doorbell.h"
#include "be/softnic/queue_pair.h"
#include "tests/common/station.h"

namespace be::test {

class HostileQueuePair {
 public:
  static constexpr uint32_t kReceives = 64;
  static constexpr uint32_t kReceiveBytes = 1024;
  static constexpr uint32_t kOutBytes = 16 << 10;  // of one SEND or WRITE

  // Device and memory are the station's; queue pair and channel are this object's, so that whoever
  // still waits for it at the end of the story is let go.
  HostileQueuePair(Station& station, Buffer& memory)
      : station_(station), memory_(memory), keys_(*station.pool->region(memory.data(), 0)) {
    channel_ = station.device->create_event_channel().value();
    cq_ = station.device->create_cq(1024, channel_.get(), nullptr, nullptr).value();
    QueuePairOptions options;
    options.send_cq = options.recv_cq = cq_;
    options.send_depth = 64;
    options.recv_depth = kReceives;
    options.max_inline_bytes = 64;
    qp_ = station.device->create_qp(options).value().qp;
    for (uint32_t i = 0; i < kReceives; ++i) post_receive(i);
  }
  ~HostileQueuePair() { leave(); }
  HostileQueuePair(const HostileQueuePair&) = delete;
  HostileQueuePair& operator=(const HostileQueuePair&) = delete;

  static constexpr uint32_t kLandingBytes = 128 << 10;

  // [ keepalive | receives | what we send | where the victim may write ]
  static constexpr size_t memory_bytes() {
    return 64 + kReceives * kReceiveBytes + kOutBytes + kLandingBytes;
  }
  EndpointBlob endpoint() { return station_.device->local_endpoint(qp_).value(); }
  void connect(const EndpointBlob& to, const uint8_t token[16], bool initiator) {
    // A lie about the endpoint may be seen at once.
    station_.device->connect_qp(qp_, to, token, initiator, ConnectOptions{.rnr_retry = 7}).ignore();
  }

  EngineTerms terms() const {
    EngineTerms terms;
    terms.recv_queue_depth = terms.initial_credits = 16;
    terms.grants = 8;
    terms.write_requests = 8;
    terms.grant_cancels = 4;
    terms.eager_bytes = kReceiveBytes;
    terms.max_message_bytes = 1u << 20;
    terms.keepalive_address = reinterpret_cast<uintptr_t>(memory_.data());
    terms.keepalive_rkey = keys_.rkey;
    terms.keepalive_interval = 1s;
    return terms;
  }
  uint64_t landing() const {
    return reinterpret_cast<uintptr_t>(memory_.data()) + memory_bytes() - kLandingBytes;
  }
  uint32_t rkey() const { return keys_.rkey; }

  void send(const FrameHeader& header, std::span<const uint8_t> rest = {}) {
    std::vector<uint8_t> bytes(FrameHeader::kBytes);
    encode(header, bytes.data());
    bytes.insert(bytes.end(), rest.begin(), rest.end());
    send_bytes(bytes);
  }
  void send_bytes(std::span<const uint8_t> bytes) { post(IBV_WR_SEND, bytes, 0, 0, 0); }
  void write(std::span<const uint8_t> bytes, uint64_t address, uint32_t rkey) {
    post(IBV_WR_RDMA_WRITE, bytes, address, rkey, 0);
  }
  void write_immediate(std::span<const uint8_t> bytes, uint64_t address, uint32_t rkey,
                       uint32_t immediate) {
    post(IBV_WR_RDMA_WRITE_WITH_IMM, bytes, address, rkey, immediate);
  }

  // A message of 16 + 1 bytes, written into the victim's ring by hand, with some bytes of its
  // slot's header as told: {offset, value} ...
  void send_bent_slot(const std::vector<std::pair<size_t, uint8_t>>& bends) {
    softnic::QueuePair& qp = *static_cast<softnic::QueuePair*>(qp_);
    const uint32_t sequence = qp.core.sends().messages() + 1;
    softnic::Slot& slot = qp.path.ring[(sequence - 1) & qp.path.ring_mask];
    FrameHeader frame;
    frame.socket = 1;
    frame.length = 1;
    encode(frame, slot.payload);
    slot.header = {.acknowledged = qp.received,
                   .byte_length = FrameHeader::kBytes + 1,
                   .imm_data = 0,
                   .opcode = softnic::kSlotSend,
                   .flags = 0,
                   .rnr_retry = 7,
                   .pair_count = 0};
    for (const auto& [offset, value] : bends) {
      reinterpret_cast<uint8_t*>(&slot.header)[offset] = value;
    }
    slot.sequence.store(sequence, std::memory_order_release);
    const uint64_t armed = softnic::mark_ready(*qp.path.recv_bell, qp.path.recv_bit);
    softnic::wake_armed(armed, &qp.path.recv_woken, qp.path.event_fd);
  }

  // The victim has been told to write at a wild address: that may be anywhere in our memory.
  void expect_wild_writes() { wild_writes_ = true; }

  // Takes what has come. Frames of an engine are well formed, whatever it hears.
  void poll() {
    ibv_wc completions[16];
    if (qp_ == nullptr) return;
    for (int n; (n = ibv_poll_cq(cq_, 16, completions)) > 0;) {
      for (int i = 0; i < n; ++i) {
        const ibv_wc& wc = completions[i];
        if (wc.status != IBV_WC_SUCCESS || (wc.opcode & IBV_WC_RECV) == 0) continue;
        if (wc.opcode == IBV_WC_RECV) take_frame(receive(wc.wr_id), wc.byte_len);
        post_receive(wc.wr_id);
      }
    }
    take_events();
  }
  // The end of this peer, told to all whom it concerns.
  void leave() {
    if (qp_ == nullptr) return;
    station_.device->retire_qp(std::exchange(qp_, nullptr)).status().ignore();
    take_events();
    MUST_HOLD(station_.device->destroy_cq(cq_).ok());
    channel_.reset();
  }

  bool connected() const { return connected_; }
  uint64_t frames_heard = 0;
  std::vector<GrantedMemory> grants;  // that the victim has given
  std::vector<uint32_t> asked;        // tags of the victim's WriteRequests
  std::vector<uint32_t> cancels;

 private:
  uint8_t* receive(uint64_t index) {
    return memory_.data() + 64 + index % kReceives * kReceiveBytes;
  }
  uint8_t* out() { return memory_.data() + 64 + kReceives * kReceiveBytes; }

  void take_events() {
    std::vector<DeviceEvent> events;
    channel_->take_events(events);
    for (const DeviceEvent& event : events) {
      connected_ |= event.kind == DeviceEvent::Kind::kConnected && event.status.ok();
    }
  }
  void post_receive(uint64_t index) {
    ibv_sge sge = {reinterpret_cast<uintptr_t>(receive(index)), kReceiveBytes, keys_.lkey};
    ibv_recv_wr wr = {index, nullptr, &sge, 1};
    ibv_recv_wr* bad = nullptr;
    ibv_post_recv(qp_, &wr, &bad);
  }
  void post(ibv_wr_opcode opcode, std::span<const uint8_t> bytes, uint64_t address, uint32_t rkey,
            uint32_t immediate) {
    const size_t length = std::min<size_t>(bytes.size(), kOutBytes);
    if (length > 0) std::memcpy(out(), bytes.data(), length);
    ibv_sge sge = {reinterpret_cast<uintptr_t>(out()), static_cast<uint32_t>(length), keys_.lkey};
    ibv_send_wr wr{};
    wr.opcode = opcode;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.imm_data = htonl(immediate);
    wr.wr.rdma.remote_addr = address;
    wr.wr.rdma.rkey = rkey;
    ibv_send_wr* bad = nullptr;
    ibv_post_send(qp_, &wr, &bad);  // full or failed: then not
  }
  void take_frame(const uint8_t* bytes, uint32_t length) {
    FrameHeader header;
    ++frames_heard;
    const bool broken = decode(bytes, length, header) != nullptr;
    MUST_HOLD(!broken || wild_writes_);
    if (broken) return;
    if (header.type == FrameType::kWriteResponse && header.refusal == Code::kOk) {
      grants.push_back(decode_granted_memory(bytes + FrameHeader::kBytes));
    }
    if (header.type == FrameType::kWriteRequest) asked.push_back(header.value);
    if (header.type == FrameType::kGrantCancel) cancels.push_back(header.value);
  }

  Station& station_;
  Buffer& memory_;
  const RegionKeys keys_;
  std::unique_ptr<EventChannel> channel_;
  ibv_cq* cq_ = nullptr;
  ibv_qp* qp_ = nullptr;
  bool wild_writes_ = false;
  bool connected_ = false;
};

// Where hostile queue pairs live. What nobody confirms stays unused for the life of a device, so
// now and then there is a new one.
class HostileHome {
 public:
  Station& station() {
    if (++stories_ % 1000 == 1) {
      memory_.reset();
      station_ = std::make_unique<Station>();
      memory_ = station_->pool->allocate_buffer(HostileQueuePair::memory_bytes()).value();
    }
    return *station_;
  }
  Buffer& memory() { return memory_; }

 private:
  uint64_t stories_ = 0;
  std::unique_ptr<Station> station_;
  Buffer memory_;
};

}  // namespace be::test
