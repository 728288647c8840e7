#include "bench/bench_allocator/workload.h"

#include <sched.h>

#include <atomic>
#include <cmath>
#include <memory>
#include <random>
#include <thread>
#include <utility>

#include "bench/common/thread_cpu_time.h"
#include "bench/common/touch.h"

namespace be::bench {
namespace {

constexpr size_t kCrossEvery = 10;
constexpr size_t kSizes = 65536;  // drawn before the clock runs

// What the thread before this one has handed over.
struct alignas(64) Mailbox {
  std::atomic<std::vector<void*>*> blocks = nullptr;
  std::atomic<bool> closed = false;  // its owner takes no more
};

class Thread {
 public:
  Thread(const Workload& workload, Allocator& allocator, uint64_t index, Mailbox& own,
         Mailbox& next)
      : workload_(workload),
        allocator_(allocator),
        own_(own),
        next_(next),
        sizes_(draw_sizes(workload, index + 1)),
        slots_(workload.slots),
        random_(0x9e3779b97f4a7c15 * (index + 1)) {}

  void run() {
    const double start = thread_cpu_seconds();
    double waited = 0;
    for (size_t loop = 0; loop < workload_.loops; ++loop) {
      free_received();
      for (size_t i = 0; i < workload_.operations_per_loop; ++i) replace();
      const double waiting = thread_cpu_seconds();
      hand_over();
      waited += thread_cpu_seconds() - waiting;
    }
    own_.closed = true;
    free_received();
    for (void* block : slots_) free(block);
    result.cpu_seconds = thread_cpu_seconds() - start - waited;
  }

  WorkloadResult result;

 private:
  void replace() {
    void*& slot = slots_[next_random() % slots_.size()];
    if (slot != nullptr) {
      if (++freed_ % kCrossEvery == 0) {
        crossing_.push_back(slot);
      } else {
        free(slot);
      }
    }
    const size_t bytes = sizes_[next_random() % kSizes];
    slot = allocator_.allocate(bytes);
    ++result.operations;
    write_each_page(slot, bytes);
  }

  void free(void* block) {
    if (block != nullptr) allocator_.deallocate(block);
  }

  void free_received() {
    std::unique_ptr<std::vector<void*>> blocks(own_.blocks.exchange(nullptr));
    if (blocks == nullptr) return;
    for (void* block : *blocks) free(block);
  }

  // Waiting for the next thread, it goes on taking what comes, so that a ring of waiters moves.
  void hand_over() {
    auto blocks = std::make_unique<std::vector<void*>>(std::exchange(crossing_, {}));
    while (!next_.closed && next_.blocks.load() != nullptr) {
      free_received();
      sched_yield();
    }
    if (next_.closed) {
      for (void* block : *blocks) free(block);
    } else {
      next_.blocks = blocks.release();  // only this thread fills it
    }
  }

  uint64_t next_random() {
    random_ ^= random_ << 13;
    random_ ^= random_ >> 7;
    random_ ^= random_ << 17;
    return random_ >> 11;
  }

  const Workload& workload_;
  Allocator& allocator_;
  Mailbox& own_;
  Mailbox& next_;
  const std::vector<uint32_t> sizes_;
  std::vector<void*> slots_;
  std::vector<void*> crossing_;
  uint64_t random_;
  size_t freed_ = 0;
};

}  // namespace

std::vector<uint32_t> draw_sizes(const Workload& workload, uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto range = static_cast<double>(workload.max_bytes - workload.min_bytes);
  std::uniform_real_distribution<double> uniform(0, 1);
  std::exponential_distribution<double> exponential(4);  // mean: a quarter of the range
  std::vector<uint32_t> sizes(kSizes);
  for (uint32_t& size : sizes) {
    double part = 2;
    if (workload.exponential) {
      while (part > 1) part = exponential(random);
    } else {
      part = 1 - std::sqrt(uniform(random));
    }
    size = static_cast<uint32_t>(static_cast<double>(workload.min_bytes) + part * range);
  }
  return sizes;
}

Workload large_workload() {
  return {.min_bytes = 64 << 10,
          .max_bytes = 1 << 20,
          .exponential = true,
          .slots = 200,
          .operations_per_loop = 2000,
          .loops = 40};
}

Workload small_workload() {
  return {.min_bytes = 16,
          .max_bytes = 16 << 10,
          .exponential = false,
          .slots = 5000,
          .operations_per_loop = 50000,
          .loops = 40};
}

WorkloadResult run_workload(const Workload& workload, int threads, Allocator& allocator) {
  const auto count = static_cast<size_t>(threads);
  std::vector<Mailbox> mailboxes(count);
  std::vector<std::unique_ptr<Thread>> states;
  for (size_t i = 0; i < count; ++i) {
    states.push_back(
        std::make_unique<Thread>(workload, allocator, i, mailboxes[i], mailboxes[(i + 1) % count]));
  }
  std::vector<std::thread> running;
  for (auto& state : states) running.emplace_back([&state] { state->run(); });
  for (std::thread& thread : running) thread.join();
  WorkloadResult sum;
  for (size_t i = 0; i < count; ++i) {
    // Handed over to a thread that was about to end.
    std::unique_ptr<std::vector<void*>> rest(mailboxes[i].blocks.load());
    if (rest != nullptr) {
      for (void* block : *rest) allocator.deallocate(block);
    }
    sum.operations += states[i]->result.operations;
    sum.cpu_seconds += states[i]->result.cpu_seconds;
  }
  return sum;
}

}  // namespace be::bench
