// Send queue of an RC queue pair: which work requests were posted, have been executed, are
// acknowledged, were reported and may be overwritten.
//
//      freed <= reported <= released <= executed <= posted          posted - freed <= depth
//
//   executed  the wire has taken it: message on its way, or bytes of a WRITE in place
//   done      executed, and the peer has acknowledged every message up to it. A WRITE is not
//             acknowledged itself, but the messages before it are: completions in post order.
//   released  may be reported when it is done: all that is executed, unless the wire holds it back
//   freed     as on hardware, a slot returns only when a signalled completion (or an error)
//             at or behind it is reported
//
// All indices only grow and are compared by subtraction. Pure; one thread.
#pragma once

#include <infiniband/verbs.h>

#include <bit>
#include <cassert>
#include <cstdint>
#include <memory>

namespace be::rc {

struct SendRecord {
  uint64_t wr_id = 0;
  uint32_t byte_len = 0;
  uint32_t messages = 0;  // sent up to and with this one; set when executed
  ibv_wc_opcode opcode = IBV_WC_SEND;
  bool signalled = false;
};

class SendQueue {
 public:
  enum class Next : uint8_t { kNothing, kDone, kFailed };

  explicit SendQueue(uint32_t depth)
      : depth_(depth), mask_(std::bit_ceil(depth) - 1), records_(new SendRecord[mask_ + 1]) {}

  uint32_t depth() const { return depth_; }
  bool full() const { return posted_ - freed_ >= depth_; }
  bool all_executed() const { return executed_ == posted_; }
  bool all_reported() const { return reported_ == posted_; }
  bool awaits_report() const { return reported_ != executed_ || error_ != IBV_WC_SUCCESS; }

  // Requires !full(). Returns the index of the record.
  uint32_t post(const SendRecord& record) {
    assert(!full());
    records_[posted_ & mask_] = record;
    return posted_++;
  }

  // Takes back the newest record, which is not executed: posting it has failed after all.
  void withdraw() {
    assert(!all_executed());
    --posted_;
  }

  // The oldest record that is not executed is now; `message`: it awaits an acknowledgement.
  void execute(bool message) {
    execute_held_back(message);
    released_ = executed_;
  }
  // The same, but it is not reported, nor is what comes behind it, until it is released.
  void execute_held_back(bool message) {
    assert(!all_executed());
    if (message) ++messages_;
    records_[executed_++ & mask_].messages = messages_;
  }
  bool holds_back() const { return released_ != executed_; }
  uint32_t next_to_release() const { return released_; }
  void release_next() {
    assert(holds_back());
    ++released_;
  }
  uint32_t last_posted() const { return posted_ - 1; }
  uint32_t next_to_execute() const { return executed_; }
  const SendRecord& record(uint32_t index) const { return records_[index & mask_]; }

  // The oldest record that is not executed cannot be: nothing behind it is executed any more.
  void fail_execution(ibv_wc_status status) { error_ = status; }
  bool execution_failed() const { return error_ != IBV_WC_SUCCESS; }

  // The peer has matched `count` messages in all. False: more than were sent, or fewer than
  // it had said before.
  bool acknowledge(uint32_t count) {
    if (static_cast<int32_t>(count - acknowledged_) < 0 ||
        static_cast<int32_t>(messages_ - count) < 0) {
      return false;
    }
    acknowledged_ = count;
    return true;
  }
  // The peer has refused the first message that it has not acknowledged.
  void fail_remotely(ibv_wc_status status) { remote_error_ = status; }

  uint32_t messages() const { return messages_; }
  uint32_t acknowledged() const { return acknowledged_; }
  bool all_acknowledged() const { return acknowledged_ == messages_; }

  // What can be said of the oldest unreported record.
  Next next() const {
    if (reported_ == released_) {
      const bool failed = !holds_back() && reported_ != posted_ && error_ != IBV_WC_SUCCESS;
      return failed ? Next::kFailed : Next::kNothing;
    }
    const uint32_t needed = records_[reported_ & mask_].messages;
    if (static_cast<int32_t>(acknowledged_ - needed) >= 0) return Next::kDone;
    return remote_error_ != IBV_WC_SUCCESS ? Next::kFailed : Next::kNothing;
  }
  ibv_wc_status failure() const { return reported_ == executed_ ? error_ : remote_error_; }

  // Takes the oldest unreported record out. `visible`: a completion is made of it.
  const SendRecord& report(bool visible) {
    assert(!all_reported());
    const SendRecord& oldest = records_[reported_++ & mask_];
    if (released_ - reported_ > depth_) {  // flushed: held back, or not even executed
      released_ = reported_;
      if (executed_ - reported_ > depth_) executed_ = reported_;
    }
    if (visible) freed_ = reported_;
    return oldest;
  }
  const SendRecord& oldest() const { return records_[reported_ & mask_]; }

 private:
  const uint32_t depth_;
  const uint32_t mask_;
  std::unique_ptr<SendRecord[]> records_;
  uint32_t posted_ = 0;
  uint32_t executed_ = 0;
  uint32_t released_ = 0;
  uint32_t reported_ = 0;
  uint32_t freed_ = 0;
  uint32_t messages_ = 0;
  uint32_t acknowledged_ = 0;
  ibv_wc_status error_ = IBV_WC_SUCCESS;
  ibv_wc_status remote_error_ = IBV_WC_SUCCESS;
};

}  // namespace be::rc
