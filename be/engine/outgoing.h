// Messages on their way out: what the engine remembers of each from send() to on_sent.
//
//   small   [queued] --SEND posted--> in the chain --completion--> done
//   large   [queued] --WriteRequest--> [requested] --WriteResponse--> [granted]
//             --fragments posted, the last with the immediate--> in the chain --> done
//                      ^ stays in its socket's queue until its last fragment is posted
//
// Nodes are recycled by the pool, so the steady state allocates nothing. A node is in exactly one
// place: a socket's queue, a slot of the chain, a GrantDone to be sent, or a list of the engine.
//
// Pure; owned by one Engine, used on its I/O thread only.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "be/base/status.h"
#include "be/engine/frame_kind.h"
#include "be/memory/buffer.h"

namespace be {

struct OutgoingMessage {
  enum class Stage : uint8_t { kQueued, kRequested, kGranted };

  OutgoingMessage* next = nullptr;
  uint64_t cookie = 0;
  SocketId socket = 0;
  uint32_t total = 0;  // bytes on the wire: engine header, Message::header, parts
  FrameKind kind = FrameKind::kMessage;
  MessageClass klass = MessageClass::kRequest;
  Stage stage = Stage::kQueued;
  bool large = false;  // needs a grant

  // Large ones only.
  uint32_t tag = 0;  // of its WriteRequest
  uint32_t grant = 0;
  uint32_t rkey = 0;
  uint32_t offset = 0;  // bytes posted; > 0: it has begun
  uint64_t address = 0;
  uint32_t part = 0;         // the next byte to post is in this part ...
  uint32_t part_offset = 0;  // ... at this offset

  uint32_t lkeys[Message::kMaxParts] = {};
  Message message;
  Status result;  // once it is done

  uint32_t payload_bytes() const;
  bool begun() const { return offset > 0; }
};

// First in, first out, linked through the nodes.
class MessageList {
 public:
  bool empty() const { return head_ == nullptr; }
  OutgoingMessage* front() const { return head_; }
  void push_back(OutgoingMessage* message);
  OutgoingMessage* pop_front();           // requires !empty()
  void remove(OutgoingMessage* message);  // requires that it is in here; walks the list

 private:
  OutgoingMessage* head_ = nullptr;
  OutgoingMessage* tail_ = nullptr;
};

class MessagePool {
 public:
  OutgoingMessage* take();
  void give(OutgoingMessage* message);  // its memory is given back

  uint32_t alive() const { return alive_; }

 private:
  static constexpr size_t kChunk = 32;
  std::vector<std::unique_ptr<OutgoingMessage[]>> chunks_;
  OutgoingMessage* free_ = nullptr;
  uint32_t alive_ = 0;
};

}  // namespace be
