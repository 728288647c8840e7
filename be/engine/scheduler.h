// Which socket prepares the next fragment: round robin over the sockets with work.
//
//   add --> [ run queue ] --take--> the engine gives it one turn: at most one fragment of S bytes
//              ^   ^ ^                 |            |
//              |   | +---- add --------+            +--> nothing to do: in no queue
//              |   +------ add_front --+ (the window is closed: it is still its turn)
//            wake                      |
//              +--- [ parked: Wait ] <-+ park (out of credit, ...)
//
// So between two turns of a socket the others get at most (n-1)*S bytes. Each Wait has a queue of
// its own, so that sockets which cannot go on cost nothing, and go on in the order in which they
// stopped.
//
// Pure; sockets are small numbers (slots of the SocketTable). Owned by one Engine, used on its
// I/O thread only. Allocates when a number larger than ever before is added. Paper 5.4.1.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "be/engine/frame_kind.h"

namespace be {

class Scheduler {
 public:
  // What a parked socket waits for.
  enum class Wait : uint8_t {
    kRequestCredit,  // a receive credit that its class may spend
    kReplyCredit,
    kRequestWriteRequest,  // room for one more unanswered WriteRequest of its class
    kReplyWriteRequest,
    kFragment,  // fewer fragments on their way
  };
  static constexpr int kWaits = 5;

  bool runnable() const { return run().head != kNone; }
  bool any_parked() const { return parked_ > 0; }
  bool parked(Wait wait) const { return list(wait).head != kNone; }

  void add(uint32_t socket);        // to the end of the run queue, unless it is in there already
  void add_front(uint32_t socket);  // requires that it is in no queue
  uint32_t take();                  // requires runnable(); afterwards it is in no queue
  void park(uint32_t socket, Wait wait);   // requires that it is in no queue
  void wake(Wait wait, uint32_t at_most);  // the longest parked ones go to the run queue's end
  void remove(uint32_t socket);            // from whichever queue it is in

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  static constexpr uint8_t kRun = kWaits;
  static constexpr uint8_t kNowhere = kWaits + 1;
  struct Links {
    uint32_t next = kNone;
    uint32_t previous = kNone;
    uint8_t where = kNowhere;
  };
  struct List {
    uint32_t head = kNone;
    uint32_t tail = kNone;
  };
  const List& run() const { return lists_[kRun]; }
  const List& list(Wait wait) const { return lists_[static_cast<uint8_t>(wait)]; }
  Links& links_of(uint32_t socket);
  void append(uint32_t socket, uint8_t where);
  void unlink(uint32_t socket);

  std::array<List, kWaits + 1> lists_;
  std::vector<Links> links_;
  uint32_t parked_ = 0;  // sockets in any list but the run queue
};

inline Scheduler::Wait credit_wait(MessageClass klass) {
  return klass == MessageClass::kReply ? Scheduler::Wait::kReplyCredit
                                       : Scheduler::Wait::kRequestCredit;
}
inline Scheduler::Wait write_request_wait(MessageClass klass) {
  return klass == MessageClass::kReply ? Scheduler::Wait::kReplyWriteRequest
                                       : Scheduler::Wait::kRequestWriteRequest;
}

}  // namespace be
