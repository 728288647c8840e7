// Completion queue: a bounded ring of ibv_wc that notices when it overflows.
//
//   push --(poll running, ring empty, room)--> the caller's array
//   push --(otherwise)--> ring --poll--> the caller's array
//
// The short cut keeps the common case (a completion found by the poll itself) at one copy.
// An overflow loses completions, so it is final: overflowed() stays true and the owner fails
// every QP of the queue (IBV_EVENT_CQ_ERR on hardware).
//
// Pure; one thread.
#pragma once

#include <infiniband/verbs.h>

#include <bit>
#include <cassert>
#include <cstdint>
#include <memory>

namespace be::rc {

class CompletionQueue {
 public:
  explicit CompletionQueue(uint32_t entries)
      : entries_(entries), mask_(std::bit_ceil(entries) - 1), ring_(new ibv_wc[mask_ + 1]) {}

  bool empty() const { return head_ == tail_; }  // of what is kept; not of a running poll
  uint32_t size() const { return tail_ - head_; }
  bool overflowed() const { return overflowed_; }

  void push(const ibv_wc& completion) {
    if (room_ > 0 && empty()) {
      *out_++ = completion;
      --room_;
      return;
    }
    if (tail_ - head_ >= entries_) {
      overflowed_ = true;
      return;
    }
    ring_[tail_++ & mask_] = completion;
  }

  // Between begin_poll and end_poll completions go to `out` directly. end_poll tells how many
  // are there.
  void begin_poll(ibv_wc* out, int room) {
    begin_ = out_ = out;
    room_ = room;
    while (room_ > 0 && !empty()) {
      *out_++ = ring_[head_++ & mask_];
      --room_;
    }
  }
  bool has_room() const { return room_ > 0; }
  int end_poll() {
    room_ = 0;
    return static_cast<int>(out_ - begin_);
  }

  // Forgets the kept completions of a QP that is destroyed.
  void drop(uint32_t qp_num) {
    uint32_t kept = head_;
    for (uint32_t i = head_; i != tail_; ++i) {
      if (ring_[i & mask_].qp_num != qp_num) ring_[kept++ & mask_] = ring_[i & mask_];
    }
    tail_ = kept;
  }

 private:
  const uint32_t entries_;
  const uint32_t mask_;
  std::unique_ptr<ibv_wc[]> ring_;
  uint32_t head_ = 0;
  uint32_t tail_ = 0;
  ibv_wc* begin_ = nullptr;
  ibv_wc* out_ = nullptr;
  int room_ = 0;
  bool overflowed_ = false;
};

}  // namespace be::rc
