// The circle of send work requests, as long as the send queue (paper 5.4.1):
//
//        completed_          posted_            prepared_
//   ... free | in flight ...... | pending ......... | free ...
//
//   in_flight + pending + free == depth
//
// Pending requests are posted by one ibv_post_send. Completions are counted by subtraction: the
// success of index i completes all before it. Signalled are the last of a batch, and at least one
// in every window/2 bytes and depth/4 requests: signalling only the last of a batch that fills
// the window would be stop-and-wait.
//
// Indices count requests since the beginning, modulo 2^31: the part of wr_id that is theirs.
//
// Pure: no verbs, no clock; the engine keeps the ibv_send_wr of slot s beside. Owned by one
// Engine, used on its I/O thread only. Never fails: an index that is not in flight is refused by
// complete, and the engine closes.
#pragma once

#include <cstdint>

namespace be {

class WorkRequestChain {
 public:
  static constexpr uint32_t kIndexMask = 0x7fffffff;

  // window_bytes 0: no window. Requires depth in 1 .. 2^20.
  WorkRequestChain(uint32_t depth, uint32_t window_bytes);

  uint32_t depth() const { return depth_; }
  uint32_t free() const { return depth_ - (prepared_ - completed_); }
  uint32_t pending() const { return prepared_ - posted_; }
  uint32_t in_flight() const { return posted_ - completed_; }

  // Slots 0 .. slots()-1: the depth rounded up to a power of two, so that indices may wrap.
  uint32_t slots() const { return mask_ + 1; }
  uint32_t slot_of(uint32_t index) const { return index & mask_; }

  struct Prepared {
    uint32_t slot = 0;
    uint32_t index = 0;  // for wr_id
    bool signalled = false;
  };
  // Requires free() > 0. `bytes`: what it will put in flight.
  Prepared prepare(uint32_t bytes);

  uint32_t oldest() const { return completed_; }  // index of the oldest in flight or pending

  // The pending ones, oldest first. The last one is to be signalled, whatever prepare said.
  struct Range {
    uint32_t first = 0;  // index
    uint32_t count = 0;
  };
  Range pending_range() const { return {posted_, prepared_ - posted_}; }
  // `count` of the pending ones were accepted by the queue pair.
  void posted(uint32_t count);

  // The completion of `index`, good or bad, ends the requests in `ended`, of which all but the
  // last succeeded. False: nothing with this index is in flight.
  [[nodiscard]] bool complete(uint32_t index, Range& ended);

 private:
  const uint32_t depth_;
  const uint32_t mask_;
  const uint32_t signal_requests_;  // signal at least one in so many
  const uint32_t signal_bytes_;     // and one in so many bytes; 0: no such rule
  uint32_t completed_ = 0;
  uint32_t posted_ = 0;
  uint32_t prepared_ = 0;
  uint32_t unsignalled_requests_ = 0;  // since the last signalled one
  uint64_t unsignalled_bytes_ = 0;
};

}  // namespace be
