// The rendezvous socket of a softnic channel, as a hostile process could use it: packets cut, bent
// and out of turn, descriptors of every kind, visitors that come and go; towards a queue pair that
// waits for a Hello, and towards one that has dialled the hostile process itself.
//
// Whatever comes, the channel goes on: afterwards two honest queue pairs connect; and every
// descriptor that was received is closed.
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <bit>

#include "be/softnic/rendezvous.h"
#include "tests/common/station.h"
#include "tests/fuzz/common/input.h"

namespace {

using namespace be;
using namespace be::fuzz;
using namespace be::test;
using softnic::Packet;
using softnic::PacketKind;

constexpr size_t kMostVisitors = 4;
constexpr uint32_t kDepth = 4;

// The hostile process' memory: regions, then a ring, a block, bells.
constexpr uint64_t kRegionsBytes = sizeof(softnic::RegionEntry) * softnic::kMaxRegions;
constexpr uint64_t kRingAt = (kRegionsBytes + 4095) & ~uint64_t{4095};
constexpr uint64_t kBlockAt = kRingAt + 4096;
constexpr uint64_t kBellsAt = kBlockAt + 4096;
constexpr uint64_t kControlBytes = kBellsAt + 2 * sizeof(softnic::Doorbell);

UniqueFd memory_file(uint64_t bytes, int seals) {
  UniqueFd fd(memfd_create("hostile", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  MUST_HOLD(fd.valid() && ftruncate(fd.get(), static_cast<off_t>(bytes)) == 0);
  if (seals != 0) MUST_HOLD(fcntl(fd.get(), F_ADD_SEALS, seals) == 0);
  return fd;
}

struct Files {
  UniqueFd control = memory_file(kControlBytes, F_SEAL_SHRINK);
  UniqueFd small = memory_file(4096, F_SEAL_SHRINK);
  UniqueFd unsealed = memory_file(kControlBytes, 0);
  UniqueFd read_only = memory_file(kControlBytes, F_SEAL_SHRINK | F_SEAL_WRITE);
  UniqueFd event{eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  UniqueFd null{open("/dev/null", O_RDWR | O_CLOEXEC)};

  int at(uint8_t choice, int usual) const {
    const int all[] = {usual,           control.get(), small.get(), unsealed.get(),
                       read_only.get(), event.get(),   null.get(),  -1};
    return all[choice % 8];
  }
};

Files& files() {
  static Files* const all = new Files();
  return *all;
}

class Story {
 public:
  Story(Station& victim, Input& input) : victim_(victim), input_(input) {
    name_ = "byteexpress-fuzz-" + std::to_string(getpid());
    listener_ = softnic::listen_abstract(name_).value();
  }

  // False: a queue pair was left that the hostile peer has not released; the device keeps it.
  bool tell() {
    const bool initiator = input_.flag();
    make_queue_pair();
    softnic::Endpoint hostile = softnic::decode_endpoint(own_endpoint()).value();
    victim_number_ = qp_->qp_num;
    victim_name_ = hostile.socket_name;
    hostile.socket_name = name_;
    hostile.instance = 0x1234;
    hostile.qp_number = 99;
    hostile.send_depth = kDepth;
    MUST_HOLD(
        victim_.device->connect_qp(qp_, softnic::encode_endpoint(hostile), kToken, initiator, {})
            .ok());
    for (int step = 0; step < 60 && !input_.empty(); ++step) act();
    return end();
  }

 private:
  void make_queue_pair() {
    QueuePairOptions options;
    options.send_cq = options.recv_cq = victim_.cq;
    options.send_depth = options.recv_depth = kDepth;
    options.max_inline_bytes = 64;
    qp_ = victim_.device->create_qp(options).value().qp;
  }
  EndpointBlob own_endpoint() { return victim_.device->local_endpoint(qp_).value(); }

  void act() {
    switch (input_.below(8)) {
      case 0:
        if (visitors_.size() < kMostVisitors) {
          if (auto socket = softnic::connect_abstract(victim_name_); socket.ok()) {
            visitors_.push_back(std::move(*socket));
          }
        }
        break;
      case 1:  // take what the victim dials
        if (visitors_.size() < kMostVisitors) {
          UniqueFd dialled(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
          if (dialled.valid()) visitors_.push_back(std::move(dialled));
        }
        break;
      case 2:
      case 3:
        send_bent();
        break;
      case 4: {
        const auto bytes = input_.bytes(input_.u8());
        if (visitors_.empty()) break;
        ::send(socket(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
        break;
      }
      case 5:
        if (!visitors_.empty()) visitors_.erase(visitors_.begin() + input_.u8() % visitors_.size());
        break;
      case 6:
        victim_.events();
        break;
      case 7:
        use_queue_pair();
        break;
    }
  }

  int socket() { return visitors_[input_.u8() % visitors_.size()].get(); }

  // A packet as it should be, but for what the input says.
  void send_bent() {
    Packet packet;
    packet.kind = static_cast<PacketKind>(1 + input_.u8() % 3);
    const bool accept = packet.kind == PacketKind::kAccept;
    std::memcpy(packet.token_half, kToken + (accept ? softnic::kTokenHalf : 0),
                softnic::kTokenHalf);
    packet.target_qp = victim_number_;
    packet.own_qp = 99;
    packet.instance = 0x1234;
    packet.channel = 1;
    packet.control_size = kControlBytes;
    packet.data_size = kControlBytes;
    packet.regions_offset = 0;
    packet.ring_offset = kRingAt;
    packet.ring_depth = kDepth;
    packet.block_offset = kBlockAt;
    packet.recv_bell_offset = kBellsAt;
    packet.send_bell_offset = kBellsAt + sizeof(softnic::Doorbell);
    packet.same_cq = 1;
    auto* bytes = reinterpret_cast<uint8_t*>(&packet);
    for (uint8_t bends = input_.u8() % 4; bends > 0; --bends) {
      const size_t at = input_.u8() % sizeof(packet);
      const auto bend = input_.bytes(1 + input_.u8() % 8);
      std::memcpy(bytes + at, bend.data(), std::min(bend.size(), sizeof(packet) - at));
    }
    const uint8_t which = input_.u8();
    const int fds[3] = {files().at(which, files().control.get()),
                        files().at(input_.u8(), files().event.get()),
                        files().at(input_.u8(), files().control.get())};
    if (visitors_.empty()) return;
    const bool none = fds[0] < 0 || fds[1] < 0;
    softnic::send_packet(socket(), packet, none ? nullptr : fds).ignore();
  }

  void use_queue_pair() {
    ibv_sge sge = {reinterpret_cast<uintptr_t>(memory_.data()), input_.u8(), lkey_};
    ibv_recv_wr receive{1, nullptr, &sge, 1};
    ibv_recv_wr* bad_receive = nullptr;
    ibv_post_recv(qp_, &receive, &bad_receive);
    ibv_send_wr send{};
    send.opcode = input_.flag() ? IBV_WR_SEND : IBV_WR_RDMA_WRITE;
    send.send_flags = IBV_SEND_SIGNALED;
    send.sg_list = &sge;
    send.num_sge = 1;
    send.wr.rdma.rkey = input_.u8();
    ibv_send_wr* bad_send = nullptr;
    ibv_post_send(qp_, &send, &bad_send);
    ibv_wc completions[8];
    MUST_HOLD(ibv_poll_cq(victim_.cq, 8, completions) >= 0);
  }

  bool end() {
    // The honest end of whatever has become the queue pair's connection.
    for (const UniqueFd& visitor : visitors_) {
      Packet reset;
      softnic::send_packet(visitor.get(), reset, nullptr).ignore();
    }
    victim_.events();
    const QuiesceToken token = victim_.device->retire_qp(qp_).value();
    visitors_.clear();
    listener_.reset();
    bool quiet = token == kQuiescedNow;
    for (int i = 0; i < 3; ++i) {
      for (const DeviceEvent& event : victim_.events()) {
        quiet |= event.kind == DeviceEvent::Kind::kQuiesced && event.token == token;
      }
    }
    return quiet;
  }

 public:
  static Buffer make_memory(Station& victim) { return victim.pool->allocate_buffer(4096).value(); }
  void use(Buffer& memory) {
    memory_ = memory.bytes();
    lkey_ = victim_.pool->region(memory.data(), 0)->lkey;
  }

 private:
  Station& victim_;
  Input& input_;
  std::string name_;
  UniqueFd listener_;
  ibv_qp* qp_ = nullptr;
  uint32_t victim_number_ = 0;
  std::string victim_name_;
  std::vector<UniqueFd> visitors_;
  std::span<uint8_t> memory_;
  uint32_t lkey_ = 0;
};

// Two honest queue pairs of one device.
void expect_working(Station& station) {
  QueuePairOptions options;
  options.send_cq = options.recv_cq = station.cq;
  options.send_depth = options.recv_depth = kDepth;
  ibv_qp* a = station.device->create_qp(options).value().qp;
  ibv_qp* b = station.device->create_qp(options).value().qp;
  MUST_HOLD(
      station.device->connect_qp(a, station.device->local_endpoint(b).value(), kToken, true, {})
          .ok());
  MUST_HOLD(
      station.device->connect_qp(b, station.device->local_endpoint(a).value(), kToken, false, {})
          .ok());
  for (int i = 0; i < 4; ++i) station.events();
  MUST_HOLD(station.device->qp_state(a) == IBV_QPS_RTS);
  MUST_HOLD(station.device->qp_state(b) == IBV_QPS_RTS);
  station.device->retire_qp(a).status().ignore();
  station.device->retire_qp(b).status().ignore();
  for (int i = 0; i < 4; ++i) station.events();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // What a hostile peer never releases stays unused for the life of the device: then a new one.
  static constexpr int kMostKept = 200;
  static std::unique_ptr<Station> victim;
  static Buffer memory;
  static int kept = 0;
  files();
  if (kept == kMostKept) {
    memory.reset();
    victim.reset();
  }
  if (victim == nullptr) {
    victim = std::make_unique<Station>();
    memory = Story::make_memory(*victim);
    kept = 0;
    expect_working(*victim);
  }
  Input input(data, size);
  Story story(*victim, input);
  story.use(memory);
  const bool quiet = story.tell();
  if (!quiet) ++kept;  // with its descriptors
  if (kept == 0) expect_no_more_descriptors();
  expect_working(*victim);
  return 0;
}
