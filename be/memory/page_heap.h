// Pages for spans and large allocations, whole block runs for those larger than a block, and the
// empty blocks kept for later.
//
//   pages     from PageRuns over single blocks; a new block when no run is long enough
//   blocks    more than a block: a run of blocks of its own, one region (keys never cross)
//   kept      empty blocks and returned runs, up to kKeptBytes: registered, ready for any use;
//             what is more goes back to the system on the thread that freed it, outside the lock
//
// Any thread. One lock for pages; growth is serialised by a second one, so that threads who meet
// an exhausted heap together make one block and not one each. A failure to grow is retried once
// with everything kept given back; then it names the cap, the system call or the device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "be/base/status.h"
#include "be/memory/block_source.h"
#include "be/memory/page_runs.h"

namespace be::memory {

inline constexpr size_t kPageBytes = 4096;
inline constexpr int kPageShift = 12;

class PageHeap {
 public:
  static constexpr size_t kKeptBytes = size_t{64} << 20;

  explicit PageHeap(BlockSource& blocks);

  // First page of a run of `pages` pages, at most a block's, within one block.
  Result<uint32_t> allocate_pages(uint32_t pages);
  void free_pages(uint32_t first_page);

  // First page of a run of `count` > 1 whole blocks.
  Result<uint32_t> allocate_blocks(uint32_t count);
  void free_blocks(uint32_t first_page);

  // Bytes of what allocate_pages or allocate_blocks gave out at `first_page`.
  size_t bytes_at(uint32_t first_page) const;
  size_t block_bytes() const { return blocks_.block_bytes(); }

  // Gives all that is kept back to the system.
  void release_kept();

 private:
  struct Run {
    uint32_t first_block;
    uint32_t count;
  };

  bool take_kept_run(uint32_t count, Run& out);  // under mutex_
  size_t kept_bytes() const;                     // under mutex_
  Result<uint32_t> grow(uint32_t count);         // under growth_mutex_

  BlockSource& blocks_;
  const uint32_t pages_per_block_;

  std::mutex growth_mutex_;  // taken before mutex_

  mutable std::mutex mutex_;  // the rest
  PageRuns pages_;
  std::vector<Run> kept_runs_;
  std::vector<uint32_t> run_blocks_;  // by block: length of the block run that begins there, or 0
};

}  // namespace be::memory
