// A whole Engine whose peer says what it likes: frames cut, bent and out of turn, credits that do
// not exist, grants that were never given, answers to nothing, WRITEs beside the grant; while the
// victim sends, closes sockets, hoards memory and its time passes.
//
// Every accepted message ends exactly once, the engine fails at most once and dies within its
// bound, and its memory is back at the start.
#include <set>

#include "be/engine/engine.h"
#include "tests/common/hostile_queue_pair.h"
#include "tests/fuzz/common/input.h"

namespace {

using namespace be;
using namespace be::fuzz;
using namespace be::test;

class Victim final : public EngineUser {
 public:
  Victim(Station& station, const EngineOptions& options) : station_(station) {
    Engine::Resources resources;
    resources.device = station.device.get();
    resources.pool = station.pool.get();
    resources.cq = station.cq;
    resources.engine_index = 5;
    resources.peer = "peer";
    engine = Engine::create(resources, options, this).value();
  }

  void on_frame(FrameKind, SocketId, Buffer payload) override {
    MUST_HOLD(failures == 0);
    for (const uint8_t byte : payload.bytes()) sum_ = static_cast<uint8_t>(sum_ + byte);
    if (held_.size() < 8) held_.push_back(std::move(payload));
  }
  void on_sent(SocketId, uint64_t cookie, const Status&) override {
    MUST_HOLD(failures == 0);
    MUST_HOLD(open_.erase(cookie) == 1);
  }
  void on_engine_failed(const Status& status) override {
    MUST_HOLD(!status.ok());
    MUST_HOLD(open_.empty());
    MUST_HOLD(++failures == 1);
  }

  void send(SocketId socket, MessageClass klass, size_t bytes) {
    auto memory = station_.pool->allocate_buffer(bytes);
    if (!memory.ok()) return;
    std::memset(memory->data(), 0x77, bytes);
    Message message(*std::move(memory));
    open_.insert(++cookie_);
    if (!engine->send(socket, FrameKind::kMessage, klass, message, cookie_).ok()) {
      open_.erase(cookie_);
    }
  }
  void hold(size_t bytes) {
    if (auto memory = station_.pool->allocate_buffer(bytes); memory.ok()) {
      held_.push_back(*std::move(memory));
    }
  }
  void let_go() { held_.clear(); }

  void pump() {
    for (const DeviceEvent& event : station_.events()) {
      if (event.kind == DeviceEvent::Kind::kConnected) engine->on_connected(event.status, now);
      if (event.kind == DeviceEvent::Kind::kQpFatal) engine->fail(event.status);
      if (event.kind == DeviceEvent::Kind::kQuiesced) engine->on_quiesced(event.token);
    }
    ibv_wc completions[16];
    const int count = ibv_poll_cq(station_.cq, 16, completions);
    for (int i = 0; i < count; ++i) engine->on_completion(completions[i]);
    if (engine->wants_progress()) engine->progress(now);
    if (engine->next_tick() <= now) engine->tick(now);
  }

  std::unique_ptr<Engine> engine;
  Time now{};
  int failures = 0;
  bool all_ended() const { return open_.empty(); }

 private:
  Station& station_;
  std::vector<Buffer> held_;
  std::set<uint64_t> open_;
  uint64_t cookie_ = 0;
  uint8_t sum_ = 0;
};

EngineOptions draw_options(Input& input) {
  EngineOptions options;
  options.send_queue_depth = 2 + input.u8() % 8;
  options.recv_queue_depth = 2 + input.u8() % 8;
  options.grants = 2 + input.u8() % 4;
  options.write_requests = 2 + input.u8() % 4;
  options.grant_cancels = 1 + input.u8() % 3;
  options.eager_bytes = 512;
  options.fragment_bytes = input.flag() ? 256 : 1024;
  options.send_window_bytes = input.flag() ? 1024 : 0;
  options.max_message_bytes = 64 << 10;
  options.grant_budget_bytes = 96 << 10;
  return options;
}

class Story {
 public:
  Story(Victim& victim, HostileQueuePair& peer, Input& input)
      : victim_(victim), peer_(peer), input_(input) {}

  void tell() {
    EngineTerms terms = peer_.terms();
    const uint8_t depth = input_.u8();
    terms.recv_queue_depth = terms.initial_credits = 2 + depth % 16;
    terms.shared_receives = depth >= 128;
    if (terms.shared_receives) terms.initial_credits = 2;
    MUST_HOLD(victim_.engine->connect(terms, peer_.endpoint(), kToken, true).ok());
    peer_.connect(victim_.engine->local_endpoint().value(), kToken, false);
    for (int i = 0; i < 10 && victim_.engine->state() != Engine::State::kReady; ++i) pump();
    MUST_HOLD(victim_.engine->state() == Engine::State::kReady);
    for (int step = 0; step < 200 && !input_.empty(); ++step) act();
    victim_.engine->fail(Status(Code::kClosed, "the end"));
    MUST_HOLD(victim_.failures == 1);
    MUST_HOLD(victim_.all_ended());
    peer_.leave();
    for (int i = 0; i < 2000 && victim_.engine->state() != Engine::State::kDead; ++i) {
      pump();
      victim_.now += 1ms;
    }
    MUST_HOLD(victim_.engine->state() == Engine::State::kDead);
  }

 private:
  void pump() {
    victim_.pump();
    peer_.poll();
  }

  void act() {
    switch (input_.below(20)) {
      case 0:
        peer_.send_bytes(input_.bytes(input_.u8()));
        break;
      case 1:
      case 2:
        send_frame();
        break;
      case 3: {
        FrameHeader header = typed(FrameType::kWriteRequest, input_.u8() % 8);
        header.socket = 1 + input_.u8() % 4;
        header.length = 1 + input_.u32() % (input_.flag() ? 4000 : 80 << 10);
        peer_.send(header);
        break;
      }
      case 4:
      case 5:
        use_grant();
        break;
      case 6:
        peer_.send(typed(FrameType::kCredits, 2 + input_.u8()));
        break;
      case 7:
      case 8:
        answer_write_request();
        break;
      case 9:
        peer_.send(typed(FrameType::kGrantDone, some_grant()));
        break;
      case 10:
        peer_.send(typed(FrameType::kGrantCancel, input_.flag() ? given_ : input_.u16()));
        break;
      case 11: {  // the keepalive word
        const uint64_t value = input_.u64();
        const EngineTerms& terms = victim_.engine->local_terms();
        peer_.write({reinterpret_cast<const uint8_t*>(&value), sizeof(value)},
                    terms.keepalive_address, terms.keepalive_rkey);
        break;
      }
      case 12:
        victim_.send(1 + input_.u8() % 4, klass(), 1 + input_.u16() % 400);
        break;
      case 13:
        victim_.send(1 + input_.u8() % 4, klass(), 1 + input_.u16() % (40 << 10));
        break;
      case 14:
        victim_.engine->close_socket(1 + input_.u8() % 4, Status(Code::kClosed, "closed"));
        break;
      case 15:
        victim_.hold(size_t{1} << (10 + input_.u8() % 11));
        break;
      case 16:
        victim_.let_go();
        break;
      case 17:
        victim_.now += Nanoseconds(std::chrono::milliseconds(input_.u16() % 2000));
        pump();
        break;
      default:
        for (int i = 1 + input_.u8() % 8; i > 0; --i) pump();
    }
  }

  MessageClass klass() { return static_cast<MessageClass>(input_.u8() % 2); }

  static FrameHeader typed(FrameType type, uint32_t value) {
    FrameHeader header;
    header.type = type;
    header.value = value;
    return header;
  }

  void send_frame() {
    FrameHeader header = typed(static_cast<FrameType>(1 + input_.u8() % 21), 0);
    header.klass = klass();
    header.socket = input_.u8() % 5;
    const auto payload = input_.bytes(input_.u8());
    header.length = static_cast<uint32_t>(payload.size());
    const uint8_t bends = input_.u8();
    if ((bends & 1) != 0) header.length = input_.u32();
    if ((bends & 2) != 0) header.value = input_.u32();
    if ((bends & 4) != 0) header.cancels_taken = input_.u8();
    if ((bends & 8) != 0) header.refusal = static_cast<Code>(input_.u8());
    peer_.send(header, payload);
  }

  // A message written where the victim has allowed it, but for what the input says.
  void use_grant() {
    if (peer_.grants.empty()) return;
    const size_t which = input_.u8() % peer_.grants.size();
    const GrantedMemory grant = peer_.grants[which];
    FrameHeader header = typed(FrameType::kMessage, 0);
    header.klass = klass();
    header.socket = 1 + input_.u8() % 4;
    header.length = input_.u16();
    std::vector<uint8_t> bytes(FrameHeader::kBytes + header.length % 4096, 1);
    const uint8_t bends = input_.u8();
    if ((bends & 1) != 0) header.type = static_cast<FrameType>(input_.u8());
    encode(header, bytes.data());
    const uint64_t address = grant.address + ((bends & 2) != 0 ? input_.u16() : 0);
    const uint32_t rkey = (bends & 4) != 0 ? input_.u32() : grant.rkey;
    if ((bends & 8) != 0) return peer_.write(bytes, address, rkey);
    const uint32_t immediate = (bends & 16) != 0 ? input_.u32() : grant.grant;
    peer_.write_immediate(bytes, address, rkey, immediate);
    if ((bends & 32) == 0) peer_.grants.erase(peer_.grants.begin() + static_cast<long>(which));
  }

  uint32_t some_grant() {
    if (peer_.grants.empty() || input_.flag()) return input_.u16();
    return peer_.grants[input_.u8() % peer_.grants.size()].grant;
  }

  void answer_write_request() {
    FrameHeader header = typed(FrameType::kWriteResponse, input_.u8() % 8);
    if (!peer_.asked.empty() && input_.u8() < 200) {
      const size_t which = input_.u8() % peer_.asked.size();
      header.value = peer_.asked[which];
      peer_.asked.erase(peer_.asked.begin() + static_cast<long>(which));
    }
    GrantedMemory memory{given_, peer_.rkey(), peer_.landing()};
    const uint8_t bends = input_.u8();
    if ((bends & 1) != 0) {
      memory.address = input_.u64();
      peer_.expect_wild_writes();
    }
    if ((bends & 2) != 0) memory.rkey = input_.u32();
    if ((bends & 4) != 0) memory.grant = given_ = input_.u16();
    if ((bends & 8) != 0) header.refusal = static_cast<Code>(1 + input_.u8() % 8);
    uint8_t rest[GrantedMemory::kBytes];
    encode(memory, rest);
    peer_.send(header, rest);
  }

  Victim& victim_;
  HostileQueuePair& peer_;
  Input& input_;
  uint32_t given_ = 0x1001;  // the grant that we pretend to have given
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static Station* const ours = new Station(size_t{1} << 20);
  static auto* const theirs = new HostileHome();
  Station& station = theirs->station();
  Input input(data, size);
  {
    Victim victim(*ours, draw_options(input));
    HostileQueuePair peer(station, theirs->memory());
    Story(victim, peer, input).tell();
  }
  MUST_HOLD(ours->pool->stats().allocations == 0);
  expect_no_more_descriptors();
  return 0;
}
