#include "be/memory/page_heap.h"

#include <algorithm>

namespace be::memory {

PageHeap::PageHeap(BlockSource& blocks)
    : blocks_(blocks),
      pages_per_block_(static_cast<uint32_t>(blocks.block_bytes() / kPageBytes)),
      pages_(pages_per_block_, blocks.block_count()),
      run_blocks_(blocks.block_count()) {}

Result<uint32_t> PageHeap::allocate_pages(uint32_t pages) {
  {
    std::lock_guard lock(mutex_);
    if (const uint32_t first = pages_.take(pages); first != kNoPage) return first;
  }
  std::lock_guard growth(growth_mutex_);
  {
    std::lock_guard lock(mutex_);  // another thread may have grown meanwhile
    if (const uint32_t first = pages_.take(pages); first != kNoPage) return first;
  }
  BE_ASSIGN_OR_RETURN(const uint32_t block, grow(1));
  std::lock_guard lock(mutex_);
  pages_.add_block(block);
  return pages_.take(pages);
}

void PageHeap::free_pages(uint32_t first_page) {
  uint32_t surplus = kNoBlock;
  {
    std::lock_guard lock(mutex_);
    pages_.give(first_page);
    if (pages_.free_blocks() > 1 && kept_bytes() > kKeptBytes) surplus = pages_.take_block();
  }
  if (surplus != kNoBlock) blocks_.give_back(surplus, 1);
}

Result<uint32_t> PageHeap::allocate_blocks(uint32_t count) {
  Run run{};
  {
    std::lock_guard lock(mutex_);
    if (take_kept_run(count, run)) return run.first_block * pages_per_block_;
  }
  std::lock_guard growth(growth_mutex_);
  BE_ASSIGN_OR_RETURN(const uint32_t first, grow(count));
  std::lock_guard lock(mutex_);
  run_blocks_[first] = count;
  return first * pages_per_block_;
}

void PageHeap::free_blocks(uint32_t first_page) {
  const uint32_t first_block = first_page / pages_per_block_;
  uint32_t count = 0;
  {
    std::lock_guard lock(mutex_);
    count = run_blocks_[first_block];
    if (kept_bytes() + count * block_bytes() <= kKeptBytes) {
      kept_runs_.push_back({first_block, count});
      return;
    }
    run_blocks_[first_block] = 0;
  }
  blocks_.give_back(first_block, count);
}

size_t PageHeap::bytes_at(uint32_t first_page) const {
  std::lock_guard lock(mutex_);
  const uint32_t blocks = run_blocks_[first_page / pages_per_block_];
  return blocks != 0 ? blocks * block_bytes() : pages_.length(first_page) * kPageBytes;
}

void PageHeap::release_kept() {
  std::vector<Run> released;
  {
    std::lock_guard lock(mutex_);
    released.swap(kept_runs_);
    for (const Run& run : released) run_blocks_[run.first_block] = 0;
    for (uint32_t block = pages_.take_block(); block != kNoBlock; block = pages_.take_block()) {
      released.push_back({block, 1});
    }
  }
  for (const Run& run : released) blocks_.give_back(run.first_block, run.count);
}

// The shortest kept run that suffices and wastes at most a quarter.
bool PageHeap::take_kept_run(uint32_t count, Run& out) {
  auto best = kept_runs_.end();
  for (auto run = kept_runs_.begin(); run != kept_runs_.end(); ++run) {
    if (run->count < count || run->count > count + count / 4) continue;
    if (best == kept_runs_.end() || run->count < best->count) best = run;
  }
  if (best == kept_runs_.end()) return false;
  out = *best;
  *best = kept_runs_.back();
  kept_runs_.pop_back();
  return true;
}

size_t PageHeap::kept_bytes() const {
  size_t blocks = pages_.free_blocks();
  for (const Run& run : kept_runs_) blocks += run.count;
  return blocks * block_bytes();
}

Result<uint32_t> PageHeap::grow(uint32_t count) {
  auto first = blocks_.grow(count);
  if (first.ok()) return first;
  release_kept();
  return blocks_.grow(count);
}

}  // namespace be::memory
