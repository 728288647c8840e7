// Ring slots, block words, doorbells and region entries as a hostile peer could write them, between
// any two verbs of the victim. Whatever is in the shared memory: every receive completes exactly
// once, no completion is made up, nothing is written beside the receives, and both queue pairs can
// be retired.
#include <map>

#include "be/softnic/queue_pair.h"
#include "tests/common/station.h"
#include "tests/fuzz/common/input.h"

namespace {

using namespace be;
using namespace be::fuzz;
using namespace be::test;

constexpr uint32_t kDepth = 8;
constexpr uint32_t kZone = 32 << 10;  // of each: [receives | sources | what nobody may touch]
constexpr uint32_t kReceive = 512;
constexpr uint32_t kMaxPosts = 200;

struct End : Station {
  End() : memory(pool->allocate_buffer(3 * kZone).value()), keys(*pool->region(memory.data(), 0)) {}

  void make_queue_pair() {
    QueuePairOptions options;
    options.send_cq = options.recv_cq = cq;
    options.send_depth = options.recv_depth = kDepth;
    options.max_send_sge = options.max_recv_sge = 3;
    options.max_inline_bytes = 64;
    qp = device->create_qp(options).value().qp;
  }
  softnic::QueuePair& inside_qp() { return *static_cast<softnic::QueuePair*>(qp); }

  ibv_sge sge(uint32_t offset, uint32_t length) {
    return {reinterpret_cast<uintptr_t>(memory.data()) + offset, length, keys.lkey};
  }
  bool post_receive(uint64_t wr_id, uint32_t length) {
    ibv_sge parts[2] = {sge(wr_id % 64 * kReceive, length / 2),
                        sge(wr_id % 64 * kReceive + length / 2, length - length / 2)};
    ibv_recv_wr request{wr_id, nullptr, parts, 2};
    ibv_recv_wr* bad = nullptr;
    return ibv_post_recv(qp, &request, &bad) == 0;
  }
  bool post_send(uint64_t wr_id, ibv_wr_opcode opcode, uint32_t length, unsigned flags,
                 uint64_t remote, uint32_t rkey) {
    if ((flags & IBV_SEND_INLINE) != 0) length %= 65;
    ibv_sge parts[2] = {sge(kZone, length / 3), sge(kZone + length, length - length / 3)};
    ibv_send_wr request{};
    request.wr_id = wr_id;
    request.opcode = opcode;
    request.send_flags = flags;
    request.sg_list = parts;
    request.num_sge = 2;
    request.imm_data = static_cast<uint32_t>(wr_id);
    request.wr.rdma.remote_addr = remote;
    request.wr.rdma.rkey = rkey;
    ibv_send_wr* bad = nullptr;
    return ibv_post_send(qp, &request, &bad) == 0;
  }

  Buffer memory;
  const RegionKeys keys;
  ibv_qp* qp = nullptr;
};

ibv_wr_opcode opcode_of(uint8_t choice) {
  constexpr ibv_wr_opcode kOpcodes[] = {IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE,
                                        IBV_WR_RDMA_WRITE_WITH_IMM};
  return kOpcodes[choice % 4];
}

unsigned flags_of(uint8_t choice) {
  return ((choice & 1) ? IBV_SEND_SIGNALED : 0u) | ((choice & 2) ? IBV_SEND_INLINE : 0u) |
         ((choice & 4) ? IBV_SEND_SOLICITED : 0u);
}

class Story {
 public:
  Story(End& victim, End& peer, Input& input) : victim_(victim), peer_(peer), input_(input) {}

  void tell() {
    begin();
    for (int step = 0; step < 300 && !input_.empty(); ++step) act();
    end();
  }

 private:
  static constexpr uint64_t kSend = 1 << 20;  // bit of a wr_id

  void begin() {
    std::memset(victim_.memory.data(), 0x5a, victim_.memory.size());
    victim_.make_queue_pair();
    peer_.make_queue_pair();
    const EndpointBlob of_victim = victim_.device->local_endpoint(victim_.qp).value();
    const EndpointBlob of_peer = peer_.device->local_endpoint(peer_.qp).value();
    const ConnectOptions options{.rnr_retry = static_cast<uint8_t>(input_.u8() % 8)};
    MUST_HOLD(victim_.device->connect_qp(victim_.qp, of_peer, kToken, true, options).ok());
    MUST_HOLD(peer_.device->connect_qp(peer_.qp, of_victim, kToken, false, options).ok());
    for (int i = 0; i < 4 && victim_.device->qp_state(victim_.qp) != IBV_QPS_RTS; ++i) {
      peer_.events();
      victim_.events();
    }
    MUST_HOLD(victim_.device->qp_state(victim_.qp) == IBV_QPS_RTS);
  }

  void act() {
    softnic::QueuePair& qp = victim_.inside_qp();
    switch (input_.below(16)) {
      case 0:  // what the peer does by the rules
        peer_.post_send(kSend, opcode_of(input_.u8()), input_.u16() % 700, flags_of(input_.u8()),
                        reinterpret_cast<uintptr_t>(victim_.memory.data()), victim_.keys.rkey);
        break;
      case 1:
        peer_.post_receive(1, kReceive);
        break;
      case 2:
        poll_peer();
        break;
      case 3: {  // bytes anywhere in the ring
        const uint32_t at = input_.u32() % (qp.ring_depth * sizeof(softnic::Slot));
        const auto bytes = input_.bytes(input_.u8() % 32);
        const size_t room = qp.ring_depth * sizeof(softnic::Slot) - at;
        if (!bytes.empty()) {
          std::memcpy(reinterpret_cast<uint8_t*>(qp.ring) + at, bytes.data(),
                      std::min(room, bytes.size()));
        }
        break;
      }
      case 4:
      case 5:
        write_slot(qp);
        break;
      case 6: {  // acknowledgement: near the truth, with a refusal
        const uint64_t count = qp.core.sends().messages() + input_.u8() - 4u;
        const uint64_t refusal = input_.u8();
        qp.block->acknowledged.store(refusal << 32 | (count & 0xffffffff));
        break;
      }
      case 7:
        qp.block->acknowledged.store(input_.u64());
        qp.block->wanted.store(input_.u32());
        break;
      case 8: {
        softnic::Doorbell& bell = *qp.recv_queue->bell;
        bell.armed.store(input_.u8());
        bell.ready[input_.u8() % 64].store(input_.u64());
        break;
      }
      case 9:
        write_region();
        break;
      case 10:
      case 11:
        if (receives_ < kMaxPosts && victim_.post_receive(receives_, 1 + input_.u16() % kReceive)) {
          ++receives_;
        }
        break;
      case 12:
        victim_sends();
        break;
      case 13:
      case 14:
        poll_victim(1 + input_.u8() % 32);
        break;
      case 15:
        if (input_.flag()) ibv_req_notify_cq(victim_.cq, input_.flag());
        if (input_.u8() == 77) MUST_HOLD(victim_.device->fail_qp(victim_.qp).ok());
        victim_.events();
        break;
    }
  }

  // A message that looks well, but for what the input says.
  void write_slot(softnic::QueuePair& qp) {
    const uint32_t ahead = input_.u8() % 4;
    softnic::Slot& slot = qp.ring[(qp.received + ahead) & qp.ring_mask];
    slot.header.acknowledged = qp.core.sends().acknowledged() + input_.u8() % 4;
    slot.header.opcode = input_.u8() % 6;
    slot.header.flags = input_.u8();
    slot.header.rnr_retry = input_.u8() % 9;
    slot.header.pair_count = input_.u8() % 20;
    slot.header.byte_length = input_.u16();
    slot.header.imm_data = input_.u8();
    auto* pairs = reinterpret_cast<softnic::SlotPair*>(slot.payload);
    for (uint32_t i = 0; i < slot.header.pair_count && i < softnic::kMaxPairs; ++i) {
      pairs[i].length = input_.u16();
      pairs[i].offset = input_.flag() ? input_.u64() : input_.u16();
      pairs[i].file = input_.u8() % 3;
    }
    if (input_.flag()) {  // lengths that agree
      uint32_t sum = 0;
      for (uint32_t i = 0; i < slot.header.pair_count && i < softnic::kMaxPairs; ++i) {
        sum += pairs[i].length;
      }
      slot.header.byte_length = sum;
    }
    slot.sequence.store(qp.received + ahead + 1);
    softnic::Doorbell& bell = *qp.recv_queue->bell;
    bell.ready[qp.recv_bit / 64].fetch_or(uint64_t{1} << qp.recv_bit % 64);
  }

  // The peer's own region table, which tells where our WRITEs go.
  void write_region() {
    softnic::RegionEntry& entry = peer_.inside().control().regions()[input_.u8() % 4];
    switch (input_.below(6)) {
      case 0:
        entry.key.store(input_.flag() ? peer_.keys.rkey : input_.u32());
        break;
      case 1:
        entry.access.store(input_.u32());
        break;
      case 2:
        entry.address.store(input_.flag()
                                ? input_.u64()
                                : reinterpret_cast<uintptr_t>(peer_.memory.data()) + input_.u8());
        break;
      case 3:
        entry.length.store(input_.flag() ? input_.u64() : UINT64_MAX - input_.u8());
        break;
      case 4:
        entry.offset.store(input_.flag() ? input_.u64() : UINT64_MAX - input_.u16());
        break;
      case 5:
        entry.key.store(peer_.keys.rkey);
        entry.access.store(UINT32_MAX);
        break;
    }
  }

  void victim_sends() {
    const uint8_t target = input_.u8();
    uint64_t remote = reinterpret_cast<uintptr_t>(peer_.memory.data()) + 2 * kZone;
    if ((target & 1) != 0) remote = input_.u64();
    const uint32_t rkey = (target & 2) != 0 ? input_.u32() : peer_.keys.rkey;
    const uint8_t flags = input_.u8();
    if (sends_ < kMaxPosts &&
        victim_.post_send(kSend | sends_, opcode_of(input_.u8()), input_.u16() % 9000,
                          flags_of(flags), remote, rkey)) {
      ++sends_;
    }
  }

  void poll_peer() {
    ibv_wc completions[16];
    MUST_HOLD(ibv_poll_cq(peer_.cq, 16, completions) >= 0);
    peer_.events();
  }

  int poll_victim(int count) {
    ibv_wc completions[32];
    const int polled = ibv_poll_cq(victim_.cq, count, completions);
    MUST_HOLD(polled >= 0 && polled <= count);
    for (int i = 0; i < polled; ++i) {
      const ibv_wc& wc = completions[i];
      MUST_HOLD(wc.qp_num == victim_.qp->qp_num);
      MUST_HOLD(++completed_[wc.wr_id] == 1);
      if ((wc.wr_id & kSend) != 0) {
        MUST_HOLD((wc.wr_id & ~kSend) < sends_);
      } else {
        MUST_HOLD(wc.wr_id == received_++);  // in the order posted
        MUST_HOLD(wc.wr_id < receives_);
        if (wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RECV) {
          MUST_HOLD(wc.byte_len <= kReceive);
        }
      }
    }
    return polled;
  }

  void end() {
    victim_.device->fail_qp(victim_.qp).ignore();
    while (poll_victim(32) > 0) {
    }
    MUST_HOLD(received_ == receives_);
    MUST_HOLD(victim_.device->qp_state(victim_.qp) == IBV_QPS_ERR);
    // Receives and the peer's WRITEs went where they may, and nowhere else.
    const uint8_t* memory = victim_.memory.data();
    static const std::vector<uint8_t> untouched(2 * kZone, 0x5a);
    MUST_HOLD(std::memcmp(memory + kZone, untouched.data(), untouched.size()) == 0);

    const QuiesceToken first =
        victim_.device->retire_qp(std::exchange(victim_.qp, nullptr)).value();
    const QuiesceToken second = peer_.device->retire_qp(std::exchange(peer_.qp, nullptr)).value();
    expect_quiet(victim_, first);
    expect_quiet(peer_, second);
  }

  static void expect_quiet(End& end, QuiesceToken token) {
    bool quiet = token == kQuiescedNow;
    for (int i = 0; i < 4; ++i) {
      for (const DeviceEvent& event : end.events()) {
        quiet |= event.kind == DeviceEvent::Kind::kQuiesced && event.token == token;
      }
    }
    MUST_HOLD(quiet);
  }

  End& victim_;
  End& peer_;
  Input& input_;
  uint64_t receives_ = 0;  // posted
  uint64_t received_ = 0;  // completed
  uint64_t sends_ = 0;
  std::map<uint64_t, int> completed_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static End* const victim = new End();
  static End* const peer = new End();
  softnic::RegionEntry* regions = peer->inside().control().regions();
  struct Saved {
    uint32_t key, access;
    uint64_t address, length, offset;
  } saved[4];
  for (int i = 0; i < 4; ++i) {
    saved[i] = {regions[i].key, regions[i].access, regions[i].address, regions[i].length,
                regions[i].offset};
  }
  Input input(data, size);
  Story(*victim, *peer, input).tell();
  for (int i = 0; i < 4; ++i) {
    regions[i].key = saved[i].key;
    regions[i].access = saved[i].access;
    regions[i].address = saved[i].address;
    regions[i].length = saved[i].length;
    regions[i].offset = saved[i].offset;
  }
  expect_no_more_descriptors();
  return 0;
}
