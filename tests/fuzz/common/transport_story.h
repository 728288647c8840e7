// What the stories about a whole Node share: the node, its sockets' handlers, and the steps of a
// hostile peer that are the same on either end.
#pragma once

#include <list>
#include <memory>
#include <string>
#include <vector>

#include "be/transport/engine_offer.h"
#include "be/transport/node.h"
#include "be/transport/tcp/tcp_frame.h"
#include "tests/common/handshake_peer.h"
#include "tests/common/hostile_queue_pair.h"
#include "tests/fuzz/common/fuzz_world.h"
#include "tests/fuzz/common/input.h"

namespace be::fuzz {

using test::HandshakePeer;
using test::HostileHome;
using test::HostileQueuePair;
using test::kToken;

inline constexpr const char* kSecret = "open sesame";

inline NodeOptions story_options(bool secret) {
  NodeOptions options;
  options.transport = TransportChoice::kSoftnic;
  options.driven = true;
  options.memory = {.block_bytes = size_t{64} << 10, .cap_bytes = size_t{2} << 20};
  options.max_message_bytes = 256 << 10;
  options.engine.send_queue_depth = 4;
  options.engine.recv_queue_depth = 4;
  options.engine.grants = 2;
  options.engine.write_requests = 2;
  options.engine.grant_cancels = 1;
  options.engine.eager_bytes = 1024;
  options.engine.fragment_bytes = 1024;
  if (secret) options.secret = kSecret;
  return options;
}

// A handler that insists on the contract of Socket.
class Guest final : public SocketHandler {
 public:
  ~Guest() { MUST_HOLD(socket == nullptr); }

  void on_open(Socket& opened) override {
    MUST_HOLD(socket == nullptr && closed == 0);
    socket = &opened;
  }
  void on_message(Socket& from, Buffer message) override {
    MUST_HOLD(&from == socket && closed == 0);
    if (held.size() < 4) held.push_back(std::move(message));
  }
  void on_sent(Socket& from, uint64_t, const Status&) override {
    MUST_HOLD(&from == socket && closed == 0);
    MUST_HOLD(unsent > 0);
    --unsent;
  }
  void on_closed(Socket&, const Status& status) override {
    MUST_HOLD(++closed == 1);
    MUST_HOLD(!status.ok());
    MUST_HOLD(unsent == 0);
    socket = nullptr;
  }

  void send(RegisteredPool& pool, size_t bytes) {
    if (socket == nullptr) return;
    auto memory = pool.allocate_buffer(bytes);
    if (!memory.ok()) return;
    std::memset(memory->data(), 0x33, bytes);
    Message message(*std::move(memory));
    ++unsent;
    if (!socket->send(message, 1).ok()) --unsent;
  }

  Socket* socket = nullptr;  // while it is open
  int closed = 0;
  int unsent = 0;
  std::vector<Buffer> held;
};

// `bytes` with some of them changed.
inline std::vector<uint8_t> bent(std::vector<uint8_t> bytes, Input& input) {
  for (uint8_t bends = input.u8() % 4; bends > 0 && !bytes.empty(); --bends) {
    const size_t at = input.u16() % bytes.size();
    const auto bend = input.bytes(1 + input.u8() % 8);
    std::copy_n(bend.begin(), std::min(bend.size(), bytes.size() - at),
                bytes.begin() + static_cast<ptrdiff_t>(at));
  }
  return bytes;
}

inline HandshakePeer::Proof draw_proof(Input& input) {
  const uint8_t choice = input.u8();
  return choice < 200   ? HandshakePeer::Proof::kRight
         : choice < 230 ? HandshakePeer::Proof::kNone
                        : HandshakePeer::Proof::kWrong;
}

inline std::vector<uint8_t> draw_hello(Input& input, bool secret) {
  Hello hello;
  hello.has_secret = secret != (input.u8() > 230);
  hello.device_kinds = input.u8();
  hello.max_message_bytes = input.flag() ? input.u32() : 256 << 10;
  return bent(encode(hello), input);
}

inline std::vector<uint8_t> draw_refusal(Input& input) {
  return bent(encode_refusal(Status(static_cast<Code>(1 + input.u8() % 10), "no")), input);
}

inline void send_tcp_frame(HandshakePeer& peer, Input& input) {
  const auto payload = input.bytes(input.u8());
  TcpFrame frame{static_cast<uint32_t>(payload.size()), FrameKind::kMessage};
  const uint8_t bends = input.u8();
  if ((bends & 1) != 0) frame.length = input.u32() % (1 << 20);
  if ((bends & 2) != 0) frame.kind = static_cast<FrameKind>(input.u8());
  std::vector<uint8_t> bytes(TcpFrame::kBytes);
  frame.encode(bytes.data());
  bytes.insert(bytes.end(), payload.begin(), payload.end());
  if ((bends & 4) != 0) bytes.resize(bytes.size() / 2);
  peer.send_bytes(bytes);
}

// Something about a socket of the engine, or about nothing.
inline void send_engine_frame(HostileQueuePair& peer, Input& input, MessageClass klass) {
  FrameHeader header;
  header.type = static_cast<FrameType>(1 + input.u8() % 6);
  header.klass = klass;
  header.socket = input.u8() % 6;
  const uint8_t bends = input.u8();
  auto payload = input.copy(input.u8() % 64);
  if ((bends & 1) != 0) header.socket = input.u32();
  if ((bends & 2) != 0) payload = encode_refusal(Status(Code::kNotFound, "no"));
  if ((bends & 4) != 0) header.type = static_cast<FrameType>(input.u8());
  header.length = static_cast<uint32_t>(payload.size());
  peer.send(header, payload);
}

}  // namespace be::fuzz
