// Birth and death of blocks: numbers in the range, backing, registration, and the cap.
//
//   registered = blocks * block_bytes + adopted bytes <= cap
//
// Single blocks take the lowest free number and longer runs the highest, which keeps long
// stretches of the range free between them. Slow (milliseconds a block), any thread.
// Failure names the cap, the system call or the device, and leaves everything as it was.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "be/base/status.h"
#include "be/memory/region_table.h"
#include "be/memory/registered_pool.h"
#include "be/memory/reserved_range.h"
#include "be/memory/system_calls.h"

namespace be::memory {

class BlockSource {
 public:
  // Options are checked here: block size, cap (0: a quarter of RAM, whole blocks).
  static Result<std::unique_ptr<BlockSource>> create(const PoolOptions& options,
                                                     SystemCalls& calls);
  ~BlockSource();

  // A new run of `count` blocks, backed and registered as one region; its first block.
  Result<uint32_t> grow(uint32_t count);
  // Deregisters, then punches the hole. A run that cannot be deregistered is logged, stays
  // counted, and is never used again: the NIC may still reach it.
  void give_back(uint32_t first_block, uint32_t count);

  // For adopted memory, which counts against the cap.
  Status charge(size_t bytes);
  void refund(size_t bytes);

  const ReservedRange& range() const { return *range_; }
  RegionTable& regions() { return *regions_; }
  const RegionTable& regions() const { return *regions_; }

  size_t block_bytes() const { return block_bytes_; }
  size_t block_count() const { return range_->bytes() / block_bytes_; }
  size_t cap_bytes() const { return range_->bytes(); }
  size_t registered_bytes() const { return registered_bytes_.load(std::memory_order_relaxed); }
  size_t peak_registered_bytes() const { return peak_bytes_.load(std::memory_order_relaxed); }

 private:
  BlockSource(std::unique_ptr<ReservedRange> range, size_t block_bytes);
  Result<uint32_t> reserve(uint32_t count);
  Result<uint32_t> find_free_run(uint32_t count) const;
  void unreserve(uint32_t first_block, uint32_t count);
  Status charge_locked(size_t bytes);

  const size_t block_bytes_;
  std::unique_ptr<ReservedRange> range_;
  std::unique_ptr<RegionTable> regions_;

  std::mutex mutex_;
  std::vector<bool> used_;                    // by block number; under mutex_
  std::atomic<size_t> registered_bytes_ = 0;  // written under mutex_
  std::atomic<size_t> peak_bytes_ = 0;        // written under mutex_
};

}  // namespace be::memory
