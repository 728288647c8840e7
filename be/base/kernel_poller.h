// Poller over one epoll instance and one eventfd (kernel form; see poller.h).
//
// wake() costs one atomic exchange while the owner runs, and a system call only when it sleeps:
//
//   running --wait--> sleeping --events or time--> running
//      |                 |
//     wake             wake: writes the eventfd
//      v                 v
//     woken  <-----------'        the next wait does not sleep, and goes back to running
//
// The exchange is a full barrier at both ends: either the owner sees what was published before
// wake(), or the waker sees that the owner sleeps.
//
// In a forked child (fork.h) it is dead: it shares both descriptors with its parent. Nothing is
// ever ready, wait() returns at once.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "be/base/fork.h"
#include "be/base/poller.h"
#include "be/base/unique_fd.h"

struct epoll_event;

namespace be {

class KernelPoller final : public Poller {
 public:
  static Result<std::unique_ptr<Poller>> create(const Clock& clock);

  Status add(int fd, PollHandler* handler, bool writable) override;
  Status set_writable(int fd, bool writable) override;
  Status set_readable(int fd, bool readable) override;
  void remove(int fd) override;
  int wait(Time until) override;
  void wake() override;
  bool yield() override;

 private:
  enum class State : uint32_t { kRunning, kSleeping, kWoken };

  // What is known of descriptor number i. The generation tells an event of an earlier
  // registration under the same number, still in the batch being dispatched, from a present one.
  struct Registration {
    PollHandler* handler = nullptr;
    uint32_t generation = 0;
    uint32_t interest = 0;  // EPOLLIN, EPOLLOUT
  };

  KernelPoller(const Clock& clock, UniqueFd epoll, UniqueFd wake_event);

  Registration* find(int fd);  // null if it is not registered
  uint64_t tag_of(int fd) const;
  Status change_interest(int fd, uint32_t event, bool on);
  int wait_for_events(epoll_event* events, int capacity, Nanoseconds timeout);
  int dispatch(const epoll_event* events, int count);

  const ForkGuard fork_guard_;
  const Clock& clock_;
  const UniqueFd epoll_;
  const UniqueFd wake_event_;
  std::vector<Registration> registrations_;  // by descriptor number
  bool has_pwait2_ = true;                   // until the kernel (before 5.11) says otherwise
  bool core_shared_ = true;                  // until some yields have shown otherwise
  uint32_t yields_ = 0;
  int64_t switches_ = 0;  // of this thread, when we last looked
  alignas(64) std::atomic<State> state_{State::kRunning};
};

}  // namespace be
