// Pages for spans and large allocations, whole block runs for those larger than a block, and the
// empty blocks kept for later.
//
//   pages     from PageRuns over single blocks; a new block when no run is long enough
//   blocks    more than a block: a run of blocks of its own, one region (keys never cross)
//   kept      empty blocks and returned runs: registered, ready for any use
//
// Nothing is given back to the system by those who free. release_unused(), called every few seconds
// by somebody who may take his time, gives back what nobody has needed since the call before, but
// never so much that less than kept_bytes are kept:
//
//   low water   least bytes kept since the last call
//   released    max(0, low water - kept_bytes), in whole blocks
//
// Before it grows, those who hold pages that they do not need are asked for them (settle). If that
// yields less than half a block, or a sixteenth of the heap has not been handed out since it was
// done last, it grows all the same: settling empties the caches of all threads, and a heap at its
// edge must not do it again and again.
//
// Any thread. One lock for pages; growth is serialised by a second one, so that threads who meet
// an exhausted heap together make one block and not one each. A failure to grow is retried once
// with everything kept given back; then it names the cap, the system call or the device.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <span>
#include <vector>

#include "be/base/status.h"
#include "be/memory/block_source.h"
#include "be/memory/page_runs.h"
#include "be/memory/size_classes.h"
#include "be/memory/spin_lock.h"

namespace be::memory {

class PageHeap {
 public:
  struct Counts {
    size_t runs = 0;         // given out: of pages, of blocks
    size_t bytes = 0;        // of these runs
    size_t kept_blocks = 0;  // empty
  };

  // `settle` makes those who hold pages give back what they can spare; called before growth, with
  // no lock held that they need.
  PageHeap(BlockSource& blocks, size_t kept_bytes, std::function<void()> settle);

  // First page of a run of `pages` pages, at most a block's, within one block, at a multiple of
  // `alignment` pages. The runs that begin at `freed` are given back first, under the same lock.
  Result<uint32_t> allocate_pages(uint32_t pages, uint32_t alignment = 1,
                                  std::span<const uint32_t> freed = {});
  void free_pages(std::span<const uint32_t> first_pages);

  // First page of a run of `count` > 1 whole blocks.
  Result<uint32_t> allocate_blocks(uint32_t count);
  void free_blocks(uint32_t first_page);

  // Of a run that is given out, asked by its owner: no lock.
  uint32_t run_pages(uint32_t first_page) const { return pages_.length(first_page); }
  uint32_t run_blocks(uint32_t first_page) const { return run_blocks_[first_page >> block_shift_]; }

  size_t block_bytes() const { return blocks_.block_bytes(); }
  Counts counts() const;

  void release_unused();
  bool has_surplus() const { return counts().kept_blocks > kept_limit_; }
  void release_kept();  // all of it

 private:
  struct Run {
    uint32_t first_block;
    uint32_t count;
  };

  uint32_t take_pages(uint32_t pages, uint32_t alignment);                        // under lock_
  bool take_kept_run(uint32_t count, Run& out);                                   // under lock_
  size_t kept_blocks() const { return pages_.free_blocks() + kept_run_blocks_; }  // under lock_
  Result<uint32_t> grow(uint32_t count);  // under growth_mutex_
  void release_kept(size_t blocks);

  BlockSource& blocks_;
  const std::function<void()> settle_;
  const int block_shift_;    // page number >> it = block number
  const size_t kept_limit_;  // blocks
  const size_t enough_;      // pages

  std::mutex growth_mutex_;  // taken before lock_

  mutable SpinLock lock_;  // the rest
  PageRuns pages_;
  std::vector<Run> kept_runs_;
  size_t kept_run_blocks_ = 0;        // in kept_runs_
  std::vector<uint32_t> run_blocks_;  // by block: length of the block run that begins there, or 0
  size_t used_block_runs_ = 0;
  size_t used_run_blocks_ = 0;
  size_t low_water_ = 0;  // blocks
};

}  // namespace be::memory
