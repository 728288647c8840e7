// Resident: something that lives on one IoThread (a connection, a handshake, a listener) and is
// owned by it from adopt() until it disposes of itself.
//
//   adopt -> [ alive ] --dispose(this)--> [ in the graveyard ] --end of iteration--> destroyed
//
// So a callback may end the very object that called it. All members are called on the thread.
#pragma once

#include <cstddef>

#include "be/base/status.h"

namespace be {

class Resident {
 public:
  Resident() = default;
  Resident(const Resident&) = delete;
  Resident& operator=(const Resident&) = delete;
  virtual ~Resident() = default;

  // The node goes: end, tell the user why, dispose of yourself, now or within a bounded time.
  virtual void shut_down(const Status& why) = 0;

  // Does what was put off until the end of the iteration (IoThreadImpl::schedule). True if it
  // did something.
  virtual bool progress() { return false; }

  // Looks for input without being told by the Poller (IoThreadImpl::read_directly).
  virtual bool poll_input() { return false; }

  // Memory may be had again (IoThreadImpl::wait_for_memory).
  virtual void on_memory() {}

  bool disposed() const { return disposed_; }  // only destruction is left

 private:
  friend class IoThreadImpl;
  size_t place_ = 0;  // in the thread's list of residents
  bool scheduled_ = false;
  bool waits_for_memory_ = false;
  bool disposed_ = false;
};

}  // namespace be
