// fork(): how what a process has made knows that it now is in a child of that process.
//
// A child has its parent's memory but none of its threads, and shares its descriptors and all
// shared mappings: a doorbell, a byte read from a socket, a word of a ring written by the child
// corrupt what the parent believes; a lock that another thread held stays locked for ever. So in
// the child everything of ours that was made before the fork is dead:
//
//   calls that can fail    kClosed, "... was made before fork() and is dead in the child"
//   destructors            touch nothing shared, wait for nobody: what others may have been in
//                          the middle of is abandoned and not taken apart
//   new objects            work: a child may open a Node of its own
//
// Where the hot path has a flag that it reads anyway, a ForkWatcher sets that flag in the child,
// so that forks cost nothing; elsewhere a ForkGuard is asked. Only fork() is seen (pthread_atfork);
// vfork, posix_spawn, system and popen have no child that could touch anything.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string_view>
#include <utility>

#include "be/base/status.h"

namespace be {

namespace fork_internal {
extern std::atomic<uint32_t> generation;  // forks between the first process and this one
void tell_watchers();
}  // namespace fork_internal

// "<what> was made before fork() and is dead in the child"
Status forked_status(std::string_view what);

// A member that remembers the process it was made in. Any thread.
class ForkGuard {
 public:
  bool in_child() const {
    return generation_ != fork_internal::generation.load(std::memory_order_relaxed);
  }

 private:
  const uint32_t generation_ = fork_internal::generation.load(std::memory_order_relaxed);
};

// A member that is told: on_child(owner) runs in each child before fork() returns there. It takes
// no lock and no more than sets flags: other threads were anywhere when their memory was copied.
class ForkWatcher {
 public:
  using OnChild = void (*)(void* owner);

  ForkWatcher(OnChild on_child, void* owner);
  ~ForkWatcher();
  ForkWatcher(const ForkWatcher&) = delete;
  ForkWatcher& operator=(const ForkWatcher&) = delete;

 private:
  friend void fork_internal::tell_watchers();
  const OnChild on_child_;
  void* const owner_;
  ForkWatcher* next_ = nullptr;  // in the list of all
  ForkWatcher* previous_ = nullptr;
};

// Locks a mutex of static life around every fork, so that what it guards is whole in the child,
// and the mutex free. Who holds one while taking another must have given that other one first.
void keep_across_forks(std::mutex& mutex);

// Forgets `value` without destroying it: in a child, of what other threads may have been using.
template <typename T>
void abandon(T&& value) {
  static_cast<void>(new T(std::forward<T>(value)));
}

}  // namespace be
