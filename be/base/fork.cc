#include "be/base/fork.h"

#include <pthread.h>

#include <array>
#include <cassert>

namespace be {

namespace fork_internal {
constinit std::atomic<uint32_t> generation{0};
}  // namespace fork_internal

namespace {

constexpr size_t kMaxKept = 16;

struct Registry {
  std::mutex mutex;  // innermost: nothing is called while it is held, but in the child
  ForkWatcher* first = nullptr;
  std::array<std::atomic<std::mutex*>, kMaxKept> kept{};
  size_t locked = 0;  // of `kept`, by the fork that is under way
};

Registry& registry() {
  static constinit Registry instance;
  return instance;
}

void before_fork() {
  Registry& all = registry();
  size_t count = 0;
  while (count < kMaxKept && all.kept[count].load() != nullptr) ++count;
  for (size_t i = count; i > 0; --i) all.kept[i - 1].load()->lock();
  all.mutex.lock();
  all.locked = count;
}

void after_fork() {
  Registry& all = registry();
  const size_t count = all.locked;
  all.mutex.unlock();
  for (size_t i = 0; i < count; ++i) all.kept[i].load()->unlock();
}

void after_fork_in_child() {
  fork_internal::generation.fetch_add(1, std::memory_order_relaxed);
  fork_internal::tell_watchers();
  after_fork();
}

// Before main, and in this file: whoever reads the generation has linked it.
[[maybe_unused]] const int kInstalled =
    pthread_atfork(before_fork, after_fork, after_fork_in_child);

}  // namespace

void fork_internal::tell_watchers() {
  for (const ForkWatcher* watcher = registry().first; watcher != nullptr;
       watcher = watcher->next_) {
    watcher->on_child_(watcher->owner_);
  }
}

ForkWatcher::ForkWatcher(OnChild on_child, void* owner) : on_child_(on_child), owner_(owner) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  next_ = all.first;
  if (next_ != nullptr) next_->previous_ = this;
  all.first = this;
}

ForkWatcher::~ForkWatcher() {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  (previous_ != nullptr ? previous_->next_ : all.first) = next_;
  if (next_ != nullptr) next_->previous_ = previous_;
}

void keep_across_forks(std::mutex& mutex) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  size_t place = 0;
  while (all.kept[place].load() != nullptr) ++place;
  assert(place < kMaxKept);
  all.kept[place] = &mutex;
}

Status forked_status(std::string_view what) {
  return error(Code::kClosed, "{} was made before fork() and is dead in the child", what);
}

}  // namespace be
