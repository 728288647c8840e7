// CallTable: the outstanding calls of one Channel, as a flat table of slots.
//
//   CallId = generation << 32 | slot        a slot's generation changes when its call ends
//
//   take()  any thread      free -> the caller's, who fills in the call
//   submit  any thread      the caller's -> inbox, taken by the I/O thread with take_submitted()
//   release I/O thread      ended -> free
//
// So an answer, a cancellation or a deadline that comes after the end of its call finds another
// generation, and nothing is searched. The two ways on which a slot changes threads are lock-free
// lists through the slots; everything else about a slot belongs to whoever has it: the taker until
// submit, then the I/O thread. Slots are allocated by chunks and never move; nothing is allocated
// in the steady state. At most `max_calls` at once: then take() refuses.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "be/base/time.h"
#include "be/rpc/channel.h"
#include "be/rpc/message.h"

namespace be::rpc {

enum class CallState : uint8_t {
  kFree,     // free, or not yet seen by the I/O thread
  kWaiting,  // in its lane's queue: connecting, or the socket is full
  kSent,     // the transport has it
};

class CallTable {
 public:
  static constexpr uint32_t kNone = UINT32_MAX;

  // What every call touches: one cache line.
  struct alignas(64) Slot {
    ResponseCallback callback;
    Time deadline{};
    uint32_t generation = 1;
    MethodId method = 0;
    std::atomic<uint32_t> next{kNone};  // in the free list or the inbox
    CallState state = CallState::kFree;
    uint8_t lane = 0;
  };

  // What only a call needs that could not be sent at once.
  struct Waiting {
    Payload payload;
    uint32_t next = kNone;  // in its lane's queue
    uint32_t previous = kNone;
  };

  explicit CallTable(uint32_t max_calls);

  uint32_t take();  // kNone: max_calls are taken
  void release(uint32_t index);

  // True: the inbox was empty, so the I/O thread must be told.
  bool submit(uint32_t index);
  std::vector<uint32_t>& take_submitted();  // oldest first; valid until the next call

  Slot& slot(uint32_t index) { return chunks_[index / kChunk]->slots[index % kChunk]; }
  Waiting& waiting(uint32_t index) { return chunks_[index / kChunk]->waiting[index % kChunk]; }
  CallId id_of(uint32_t index) { return CallId{slot(index).generation} << 32 | index; }

  // The index of a call that the I/O thread knows and that has not ended; else kNone. Any value
  // may be asked for: ids come from the wire.
  uint32_t find(CallId call);

  uint32_t size() const { return size_.load(std::memory_order_acquire); }  // indices are below

 private:
  static constexpr uint32_t kChunk = 64;
  struct Chunk {
    Slot slots[kChunk];
    Waiting waiting[kChunk];
  };

  uint32_t pop_free();
  uint32_t take_from_new_chunk();
  void push_free(uint32_t first, uint32_t last);

  const uint32_t max_calls_;
  std::mutex growing_;
  std::vector<std::unique_ptr<Chunk>> chunks_;  // as many as there may ever be; null until needed
  std::atomic<uint32_t> size_{0};
  std::atomic<uint64_t> free_;  // tag << 32 | index: the tag makes a reused head differ (ABA)
  std::atomic<uint32_t> inbox_{kNone};
  std::vector<uint32_t> submitted_;
};

}  // namespace be::rpc
