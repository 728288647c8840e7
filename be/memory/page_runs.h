// Runs of pages inside blocks: best fit, immediate coalescing, no headers in the memory.
//
//   block   [ used 3 | free 5 ..... | used 1 | free 2 | ... ]      runs never cross blocks
//   page    first and last page of a run hold its length and whether it is free (boundary tags)
//   bin n   the free runs of exactly n pages; a bitmap tells which bins are not empty
//
// take: the shortest free run that suffices, split. give: merged with free neighbours at once,
// so no two free runs of a block touch. Both O(pages_per_block / 64) words, usually one.
//
// Pure: knows page and block numbers only. Guarded by its owner's lock, but for length() of a run
// that is in use: its tags do not change until it is given back. Never fails but for "no run is
// long enough".
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "be/memory/zeroed_array.h"

namespace be::memory {

inline constexpr uint32_t kNoPage = UINT32_MAX;
inline constexpr uint32_t kNoBlock = UINT32_MAX;

class PageRuns {
 public:
  PageRuns(uint32_t pages_per_block, size_t block_count);

  void add_block(uint32_t block);  // becomes one free run
  uint32_t take_block();           // takes a block that is wholly free out, or kNoBlock

  // First page, a multiple of `alignment` (a power of two, at most a block's pages), or kNoPage;
  // requires 0 < pages <= a block's.
  uint32_t take(uint32_t pages, uint32_t alignment = 1);
  void give(uint32_t first_page);
  uint32_t length(uint32_t first_page) const { return pages_[first_page].length; }

  size_t free_blocks() const { return free_blocks_; }  // blocks without a used page
  size_t free_pages() const { return free_pages_; }
  size_t used_pages() const { return used_pages_; }
  size_t used_runs() const { return used_runs_; }

 private:
  struct Page {
    uint32_t length;  // valid at the first and the last page of a run
    uint32_t next;    // of a free run's first page: the other runs of its bin
    uint32_t previous;
    bool free;
  };

  void insert(uint32_t first, uint32_t length);
  void remove(uint32_t first);
  void tag(uint32_t first, uint32_t length, bool free);
  uint32_t shortest_bin(uint32_t pages) const;
  uint32_t find_aligned(uint32_t pages, uint32_t sure, uint32_t alignment) const;

  const uint32_t pages_per_block_;
  ZeroedArray<Page> pages_;
  std::vector<uint32_t> heads_;      // by length
  std::vector<uint64_t> non_empty_;  // bit per length
  size_t free_blocks_ = 0;
  size_t free_pages_ = 0;
  size_t used_pages_ = 0;  // free + used = pages of the blocks that were added
  size_t used_runs_ = 0;
};

}  // namespace be::memory
