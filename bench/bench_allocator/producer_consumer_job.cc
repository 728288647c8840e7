// One thread allocates, another frees, through a bounded ring, for as long as is asked; or
// ("same_thread") two threads each do both, through a ring of their own. Sizes as in Figure 4,
// every page touched by the one who allocates. An operation is one allocation and one free.
//
// Registered bytes are sampled all the while. The rate is per CPU second of both threads, waiting
// for each other excluded: a side that finds the ring full (empty) waits until a half of it is free
// (filled), so waits are few.
#include <sched.h>

#include <atomic>
#include <thread>
#include <vector>

#include "be/base/world.h"
#include "bench/bench_allocator/jobs.h"
#include "bench/bench_allocator/pointer_ring.h"
#include "bench/bench_allocator/subject.h"
#include "bench/common/thread_cpu_time.h"
#include "bench/common/touch.h"

namespace be::bench {
namespace {

constexpr size_t kBatch = 64;  // between two looks at the stop flag
constexpr Nanoseconds kSampleEvery = 50ms;

struct Shared {
  Allocator& allocator;
  const std::vector<uint32_t> sizes;
  PointerRing ring;
  std::atomic<bool> stop = false;
  std::atomic<bool> produced_all = false;
};

struct Side {
  uint64_t operations = 0;  // blocks that it has allocated
  double cpu_seconds = 0;
};

void* make(Shared& shared, uint64_t turn) {
  const size_t bytes = shared.sizes[turn % shared.sizes.size()];
  void* block = shared.allocator.allocate(bytes);
  write_each_page(block, bytes);
  return block;
}

// So that growth, which comes once, is in no rate.
void warm_up(Shared& shared) {
  std::vector<void*> blocks(shared.ring.capacity());
  for (size_t i = 0; i < blocks.size(); ++i) blocks[i] = make(shared, i);
  for (void* block : blocks) shared.allocator.deallocate(block);
}

// The CPU time of it.
template <typename Condition>
double wait_until(Condition condition) {
  const double start = thread_cpu_seconds();
  while (!condition()) sched_yield();
  return thread_cpu_seconds() - start;
}

Side produce(Shared& shared) {
  Side side;
  const double start = thread_cpu_seconds();
  double waited = 0;
  const size_t half = shared.ring.capacity() / 2;
  while (!shared.stop.load(std::memory_order_relaxed)) {
    for (size_t i = 0; i < kBatch; ++i) {
      void* block = make(shared, side.operations++);
      while (!shared.ring.push(block)) {
        waited += wait_until([&] { return shared.ring.size() <= half; });
      }
    }
  }
  shared.produced_all = true;
  side.cpu_seconds = thread_cpu_seconds() - start - waited;
  return side;
}

Side consume(Shared& shared) {
  Side side;
  const double start = thread_cpu_seconds();
  double waited = 0;
  const size_t half = shared.ring.capacity() / 2;
  while (true) {
    if (void* block = shared.ring.pop(); block != nullptr) {
      shared.allocator.deallocate(block);
    } else if (shared.produced_all) {
      if (shared.ring.size() == 0) break;
    } else {
      waited += wait_until([&] { return shared.ring.size() >= half || shared.produced_all; });
    }
  }
  side.cpu_seconds = thread_cpu_seconds() - start - waited;
  return side;
}

// Both, with the ring half full all the time.
Side produce_and_consume(Shared& shared, PointerRing& ring) {
  Side side;
  const double start = thread_cpu_seconds();
  uint64_t turn = 0;
  while (turn < ring.capacity() / 2) ring.push(make(shared, turn++));
  while (!shared.stop.load(std::memory_order_relaxed)) {
    for (size_t i = 0; i < kBatch; ++i) {
      ring.push(make(shared, turn++));
      shared.allocator.deallocate(ring.pop());
    }
  }
  while (void* block = ring.pop()) shared.allocator.deallocate(block);
  side.operations = turn;
  side.cpu_seconds = thread_cpu_seconds() - start;
  return side;
}

}  // namespace

Result<nlohmann::json> do_producer_consumer(const nlohmann::json& job) {
  const Workload workload = workload_of(job);
  const Nanoseconds duration(static_cast<int64_t>(job.at("seconds").get<double>() * 1e9));
  BE_ASSIGN_OR_RETURN(const std::unique_ptr<Subject> subject, Subject::create("pool"));
  // As many blocks in the ring as a thread of Figure 4 holds.
  Shared shared{*subject, draw_sizes(workload, /*seed=*/1), PointerRing(workload.slots)};

  PointerRing other_ring(workload.slots);
  warm_up(shared);

  Side producer;
  Side consumer;
  std::vector<std::thread> threads;
  if (job.at("same_thread")) {
    // Two such threads: cores may share their units, and then slow each other down.
    threads.emplace_back([&] { producer = produce_and_consume(shared, shared.ring); });
    threads.emplace_back([&] { consumer = produce_and_consume(shared, other_ring); });
  } else {
    threads.emplace_back([&] { producer = produce(shared); });
    threads.emplace_back([&] { consumer = consume(shared); });
  }
  std::vector<size_t> registered;
  const Time end = kernel_world().now() + duration;
  while (kernel_world().now() < end) {
    std::this_thread::sleep_for(kSampleEvery);
    registered.push_back(subject->registered()->stats().registered_bytes);
  }
  shared.stop = true;
  for (std::thread& thread : threads) thread.join();

  const PoolStats stats = subject->registered()->stats();
  return nlohmann::json{
      {"operations", producer.operations + consumer.operations},
      {"cpu_seconds", producer.cpu_seconds + consumer.cpu_seconds},
      {"peak_registered_bytes", stats.peak_registered_bytes},
      {"registrations", stats.registrations},
      {"sample_seconds", static_cast<double>(kSampleEvery.count()) * 1e-9},
      {"registered_bytes", registered},
  };
}

}  // namespace be::bench
