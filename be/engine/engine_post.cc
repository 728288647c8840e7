#include <arpa/inet.h>

#include <algorithm>
#include <cassert>
#include <cstring>

#include "be/engine/engine_impl.h"
#include "be/verbs/errors.h"

namespace be {

// The next work request of the chain, with `bytes` of it counted for signalling; linked to the
// one before. The caller fills in gather list, opcode, message, window_bytes and kind.
Engine::Impl::SendSlot& Engine::Impl::next_slot(uint32_t bytes) {
  const bool first = chain_.pending() == 0;
  const WorkRequestChain::Prepared prepared = chain_.prepare(bytes);
  SendSlot& slot = send_slots_[prepared.slot];
  if (!first) send_slots_[chain_.slot_of(prepared.index - 1)].wr.next = &slot.wr;
  slot.wr.wr_id = wr_id(prepared.index, 0);
  slot.wr.next = nullptr;
  slot.wr.send_flags = prepared.signalled ? IBV_SEND_SIGNALED : 0;
  return slot;
}

FrameHeader Engine::Impl::control_header(FrameType type, uint32_t value) const {
  FrameHeader header;
  header.type = type;
  header.cancels_taken = cancels_taken_;
  header.value = value;
  return header;
}

// A SEND without payload. Exempt from the window.
void Engine::Impl::prepare_control(const FrameHeader& header, OutgoingMessage* message,
                                   const GrantedMemory* memory) {
  SendSlot& slot = next_slot(FrameHeader::kBytes);
  uint8_t* bytes = header_of(static_cast<uint32_t>(&slot - send_slots_.data()));
  uint32_t length = FrameHeader::kBytes;
  encode(header, bytes);
  if (memory != nullptr) {
    encode(*memory, bytes + length);
    length += GrantedMemory::kBytes;
  }
  slot.sge[0] = {reinterpret_cast<uintptr_t>(bytes), length, header_lkey_};
  slot.wr.num_sge = 1;
  slot.wr.opcode = IBV_WR_SEND;
  if (length <= inline_bytes_) slot.wr.send_flags |= IBV_SEND_INLINE;
  slot.message = message;
  slot.window_bytes = 0;
  slot.kind = SendSlot::Kind::kPlain;
}

void Engine::Impl::prepare_send(OutgoingMessage* message) {
  SendSlot& slot = next_slot(message->total);
  uint8_t* bytes = header_of(static_cast<uint32_t>(&slot - send_slots_.data()));
  const Message& from = message->message;
  FrameHeader header;
  header.type = static_cast<FrameType>(message->kind);
  header.klass = message->klass;
  header.cancels_taken = cancels_taken_;
  header.socket = message->socket;
  header.length = message->payload_bytes();
  encode(header, bytes);
  std::memcpy(bytes + FrameHeader::kBytes, from.header, from.header_bytes);
  slot.sge[0] = {reinterpret_cast<uintptr_t>(bytes), FrameHeader::kBytes + from.header_bytes,
                 header_lkey_};
  for (uint32_t i = 0; i < from.count; ++i) {
    slot.sge[i + 1] = {reinterpret_cast<uintptr_t>(from.parts[i].data()),
                       static_cast<uint32_t>(from.parts[i].size()), message->lkeys[i]};
  }
  slot.wr.num_sge = 1 + from.count;
  slot.wr.opcode = IBV_WR_SEND;
  if (message->total <= inline_bytes_) slot.wr.send_flags |= IBV_SEND_INLINE;
  slot.message = message;
  slot.window_bytes = message->total;
  slot.kind = SendSlot::Kind::kPlain;
  window_.post(message->total);
}

uint32_t Engine::Impl::fragment_length(const OutgoingMessage& message) const {
  return std::min(fragment_bytes_, message.total - message.offset);
}

// The next S bytes of a granted message: headers (in the first), then pieces of its parts.
void Engine::Impl::prepare_fragment(OutgoingMessage* message) {
  const uint32_t length = fragment_length(*message);
  SendSlot& slot = next_slot(length);
  const Message& from = message->message;
  slot.wr.wr.rdma.remote_addr = message->address + message->offset;
  slot.wr.wr.rdma.rkey = message->rkey;

  int pieces = 0;
  uint32_t rest = length;
  if (message->offset == 0) {
    uint8_t* bytes = header_of(static_cast<uint32_t>(&slot - send_slots_.data()));
    FrameHeader header;
    header.type = static_cast<FrameType>(message->kind);
    header.klass = message->klass;
    header.socket = message->socket;
    header.length = message->payload_bytes();
    encode(header, bytes);
    std::memcpy(bytes + FrameHeader::kBytes, from.header, from.header_bytes);
    const uint32_t headers = FrameHeader::kBytes + from.header_bytes;
    slot.sge[pieces++] = {reinterpret_cast<uintptr_t>(bytes), headers, header_lkey_};
    rest -= headers;  // S has room for both
  }
  while (rest > 0) {
    const Buffer& part = from.parts[message->part];
    const uint32_t piece =
        std::min(rest, static_cast<uint32_t>(part.size()) - message->part_offset);
    slot.sge[pieces++] = {reinterpret_cast<uintptr_t>(part.data()) + message->part_offset, piece,
                          message->lkeys[message->part]};
    rest -= piece;
    message->part_offset += piece;
    if (message->part_offset == part.size()) {
      ++message->part;
      message->part_offset = 0;
    }
  }
  message->offset += length;
  const bool last = message->offset == message->total;
  slot.wr.num_sge = pieces;
  slot.wr.opcode = last ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE;
  slot.wr.imm_data = last ? htonl(message->grant) : 0;
  slot.message = last ? message : nullptr;
  slot.window_bytes = length;
  slot.kind = SendSlot::Kind::kFragment;
  ++fragments_in_flight_;
  window_.post(length);
}

void Engine::Impl::prepare_keepalive() {
  SendSlot& slot = next_slot(sizeof(keepalive_write_));
  uint8_t* bytes = header_of(static_cast<uint32_t>(&slot - send_slots_.data()));
  std::memcpy(bytes, &keepalive_write_, sizeof(keepalive_write_));
  keepalive_write_ = 0;
  slot.sge[0] = {reinterpret_cast<uintptr_t>(bytes), sizeof(keepalive_write_), header_lkey_};
  slot.wr.num_sge = 1;
  slot.wr.opcode = IBV_WR_RDMA_WRITE;
  slot.wr.wr.rdma.remote_addr = remote_.keepalive_address;
  slot.wr.wr.rdma.rkey = remote_.keepalive_rkey;
  if (sizeof(keepalive_write_) <= inline_bytes_) slot.wr.send_flags |= IBV_SEND_INLINE;
  slot.message = nullptr;
  slot.window_bytes = 0;
  slot.kind = SendSlot::Kind::kKeepalive;
}

// All pending work requests by one call.
bool Engine::Impl::post() {
  const WorkRequestChain::Range pending = chain_.pending_range();
  if (pending.count == 0) return false;
  ibv_send_wr* first = &send_slots_[chain_.slot_of(pending.first)].wr;
  send_slots_[chain_.slot_of(pending.first + pending.count - 1)].wr.send_flags |= IBV_SEND_SIGNALED;
  ibv_send_wr* bad = nullptr;
  const int error_number = ibv_post_send(qp_, first, &bad);
  if (error_number == 0) {
    chain_.posted(pending.count);
    return true;
  }
  uint32_t accepted = 0;
  for (ibv_send_wr* wr = first; wr != nullptr && wr != bad; wr = wr->next) ++accepted;
  chain_.posted(accepted);
  fail(verb_error("ibv_post_send", error_number, resources_.peer));
  return true;
}

}  // namespace be
