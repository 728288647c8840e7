// The price of region(): a loop that looks pointers up, minus the same loop without.
//
//   hot      one pointer again and again
//   blocks   1000 random live blocks of both workloads' sizes, in random order
//   chained  as blocks, but each lookup waits for the keys of the one before (latency)
#include <algorithm>
#include <random>
#include <vector>

#include "be/base/world.h"
#include "bench/bench_allocator/jobs.h"
#include "bench/bench_allocator/subject.h"

namespace be::bench {
namespace {

constexpr size_t kBlocks = 1000;
constexpr size_t kLookups = 20'000'000;
constexpr int kRepetitions = 5;

std::vector<void*> live_blocks(Subject& subject) {
  std::mt19937_64 random(1);
  std::vector<void*> blocks(kBlocks);
  for (size_t i = 0; i < kBlocks; ++i) {
    const Workload workload = i % 2 == 0 ? large_workload() : small_workload();
    std::uniform_int_distribution<size_t> size(workload.min_bytes, workload.max_bytes);
    blocks[i] = subject.allocate(size(random));
  }
  std::shuffle(blocks.begin(), blocks.end(), random);
  return blocks;
}

// What `next` does to an index and a sum, kLookups times over `blocks`: nanoseconds each.
template <typename Step>
double time_each(const std::vector<void*>& blocks, Step step) {
  uint64_t sum = 0;
  size_t at = 0;
  const Time start = kernel_world().now();
  for (size_t i = 0; i < kLookups; ++i) {
    const void* pointer = blocks[at];
    asm volatile("" : "+r"(pointer));  // nothing is known of it, nothing is hoisted
    step(pointer, sum);
    if (++at == blocks.size()) at = 0;
  }
  asm volatile("" : : "r"(sum));
  return static_cast<double>((kernel_world().now() - start).count()) / kLookups;
}

template <typename With, typename Without>
double median_difference(const std::vector<void*>& blocks, With with, Without without) {
  std::vector<double> differences;
  for (int i = 0; i < kRepetitions; ++i) {
    const double base = time_each(blocks, without);
    differences.push_back(time_each(blocks, with) - base);
  }
  std::nth_element(differences.begin(), differences.begin() + kRepetitions / 2, differences.end());
  return differences[kRepetitions / 2];
}

}  // namespace

Result<nlohmann::json> do_lookup() {
  BE_ASSIGN_OR_RETURN(const std::unique_ptr<Subject> subject, Subject::create("pool"));
  const RegisteredPool& pool = *subject->registered();
  const std::vector<void*> blocks = live_blocks(*subject);

  const auto independent = [&pool](const void* pointer, uint64_t& sum) {
    sum += pool.region(pointer, 0)->lkey;
  };
  const auto nothing = [](const void* pointer, uint64_t& sum) {
    sum += reinterpret_cast<uintptr_t>(pointer);
  };
  // The sum is made part of the address (its low bits are masked away), so the next waits for it.
  const auto after_the_last = [&pool](const void* pointer, uint64_t& sum) {
    const auto address = reinterpret_cast<uintptr_t>(pointer) + (sum & 1);
    sum += pool.region(reinterpret_cast<const void*>(address), 0)->lkey;
  };
  const auto chain_without = [](const void* pointer, uint64_t& sum) {
    sum += reinterpret_cast<uintptr_t>(pointer) + (sum & 1);
  };

  nlohmann::json result = {
      {"hot_ns", median_difference({blocks[0]}, independent, nothing)},
      {"blocks_ns", median_difference(blocks, independent, nothing)},
      {"chained_ns", median_difference(blocks, after_the_last, chain_without)},
      {"blocks", kBlocks},
  };
  for (void* block : blocks) subject->deallocate(block);
  return result;
}

}  // namespace be::bench
