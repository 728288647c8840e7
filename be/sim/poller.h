// Poller in virtual time: wait() returns at once, having dispatched what is ready, or having
// noted until when its loop sleeps. The loop is stepped again when something is due.
//
// A sleeper is woken only by a change of a descriptor's readiness, by wake() or by its time, as
// epoll does it: a wake-up that the code under test forgets is lost here too.
#pragma once

#include <map>

#include "be/base/poller.h"
#include "be/sim/descriptor.h"

namespace be::sim {

class Host;
class VirtualLoop;

class VirtualPoller final : public Poller {
 public:
  explicit VirtualPoller(Host& host) : host_(host) {}
  ~VirtualPoller() override;

  Status add(int fd, PollHandler* handler, bool writable) override;
  Status set_writable(int fd, bool writable) override;
  Status set_readable(int fd, bool readable) override;
  void remove(int fd) override;
  int wait(Time until) override;
  void wake() override;
  bool yield() override { return false; }

  // --- By the loop
  void runs(VirtualLoop* loop) { loop_ = loop; }
  void begin_step() { sleeps_until_ = Time::min(); }
  Time sleeps_until() const { return sleeps_until_; }  // Time::min(): it does not sleep

  void on_change(const Descriptor& descriptor);

 private:
  struct Watch {
    Descriptor* descriptor;
    PollHandler* handler;
    bool reads = true;
    bool writes = false;
    bool ready_to_read() const {
      return (reads && descriptor->readable()) || descriptor->hung_up();
    }
    bool ready_to_write() const { return writes && descriptor->writable(); }
  };

  Host& host_;
  VirtualLoop* loop_ = nullptr;
  std::map<int, Watch> watches_;
  bool woken_ = false;
  Time sleeps_until_ = Time::min();
};

}  // namespace be::sim
