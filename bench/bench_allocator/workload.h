// The workload of the paper's Figure 4 and of PEERS.md section 2, for any allocator.
//
// Each thread keeps `slots` live blocks and replaces random ones:
//
//   operation   free the slot's block, allocate another of a random size, write into each page
//   LARGE       64 KiB to 1 MiB, density falling exponentially; 200 slots, 2000 operations a loop
//   SMALL       16 B to 16 KiB, density falling linearly; 5000 slots, 50000 operations a loop
//   crossing    every tenth freed block is kept until the loop ends; all of them are then handed to
//               the next thread, which frees them at the start of its next loop
//
// A thread hands over only when the last hand-over was taken, so memory in flight is bounded
// whatever the scheduler does. Time is the threads' own
// CPU time from their first operation to their last, page faults and growth included, waiting for
// the other threads excluded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace be::bench {

struct Workload {
  size_t min_bytes = 0;
  size_t max_bytes = 0;
  bool exponential = false;  // or linear
  size_t slots = 0;
  size_t operations_per_loop = 0;
  size_t loops = 0;
};

Workload large_workload();
Workload small_workload();

// Many sizes of the workload, so that none is drawn while the clock runs.
std::vector<uint32_t> draw_sizes(const Workload& workload, uint64_t seed);

// What is measured. Called by all threads at once.
class Allocator {
 public:
  virtual ~Allocator() = default;
  virtual void* allocate(size_t bytes) = 0;  // never null: the run ends if there is no memory
  virtual void deallocate(void* pointer) = 0;
};

struct WorkloadResult {
  uint64_t operations = 0;
  double cpu_seconds = 0;  // of all threads
};

WorkloadResult run_workload(const Workload& workload, int threads, Allocator& allocator);

}  // namespace be::bench
