#include "be/memory/page_heap.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <utility>

namespace be::memory {

PageHeap::PageHeap(BlockSource& blocks, size_t kept_bytes, std::function<void()> settle)
    : blocks_(blocks),
      settle_(std::move(settle)),
      block_shift_(std::countr_zero(blocks.block_bytes()) - kPageShift),
      kept_limit_(kept_bytes / blocks.block_bytes()),
      enough_((size_t{1} << block_shift_) / 2),
      pages_(1u << block_shift_, blocks.block_count()),
      run_blocks_(blocks.block_count()) {}

Result<uint32_t> PageHeap::allocate_pages(uint32_t pages, uint32_t alignment,
                                          std::span<const uint32_t> freed) {
  {
    std::lock_guard lock(lock_);
    for (const uint32_t first_page : freed) pages_.give(first_page);
    if (const uint32_t first = take_pages(pages, alignment); first != kNoPage) return first;
  }
  std::lock_guard growth(growth_mutex_);
  settle_();
  {
    std::lock_guard lock(lock_);  // another thread may have grown meanwhile
    if (pages_.free_pages() >= enough_) {
      if (const uint32_t first = take_pages(pages, alignment); first != kNoPage) return first;
    }
  }
  BE_ASSIGN_OR_RETURN(const uint32_t block, grow(1));
  std::lock_guard lock(lock_);
  pages_.add_block(block);
  return take_pages(pages, alignment);
}

uint32_t PageHeap::take_pages(uint32_t pages, uint32_t alignment) {
  const uint32_t first = pages_.take(pages, alignment);
  low_water_ = std::min(low_water_, kept_blocks());
  return first;
}

void PageHeap::free_pages(std::span<const uint32_t> first_pages) {
  std::lock_guard lock(lock_);
  for (const uint32_t first_page : first_pages) pages_.give(first_page);
}

Result<uint32_t> PageHeap::allocate_blocks(uint32_t count) {
  Run run{};
  {
    std::lock_guard lock(lock_);
    if (take_kept_run(count, run)) {
      ++used_block_runs_;
      used_run_blocks_ += run.count;
      return run.first_block << block_shift_;
    }
  }
  std::lock_guard growth(growth_mutex_);
  BE_ASSIGN_OR_RETURN(const uint32_t first, grow(count));
  std::lock_guard lock(lock_);
  run_blocks_[first] = count;
  ++used_block_runs_;
  used_run_blocks_ += count;
  return first << block_shift_;
}

void PageHeap::free_blocks(uint32_t first_page) {
  const uint32_t first_block = first_page >> block_shift_;
  std::lock_guard lock(lock_);
  const uint32_t count = run_blocks_[first_block];
  kept_runs_.push_back({first_block, count});
  kept_run_blocks_ += count;
  --used_block_runs_;
  used_run_blocks_ -= count;
}

PageHeap::Counts PageHeap::counts() const {
  std::lock_guard lock(lock_);
  return {.runs = pages_.used_runs() + used_block_runs_,
          .bytes = pages_.used_pages() * kPageBytes + used_run_blocks_ * block_bytes(),
          .kept_blocks = kept_blocks()};
}

void PageHeap::release_unused() {
  size_t unused = 0;
  {
    std::lock_guard lock(lock_);
    unused = low_water_ - std::min(low_water_, kept_limit_);
    low_water_ = kept_blocks() - std::min(kept_blocks(), unused);
  }
  if (unused > 0) release_kept(unused);
}

void PageHeap::release_kept() { release_kept(std::numeric_limits<size_t>::max()); }

// At most `blocks`; runs are not divided. Deregistration takes its time: outside the lock.
void PageHeap::release_kept(size_t blocks) {
  std::vector<Run> released;
  {
    std::lock_guard lock(lock_);
    for (size_t i = kept_runs_.size(); i-- > 0;) {
      const Run run = kept_runs_[i];
      if (run.count > blocks) continue;
      blocks -= run.count;
      kept_run_blocks_ -= run.count;
      run_blocks_[run.first_block] = 0;
      kept_runs_[i] = kept_runs_.back();
      kept_runs_.pop_back();
      released.push_back(run);
    }
    for (; blocks > 0; --blocks) {
      const uint32_t block = pages_.take_block();
      if (block == kNoBlock) break;
      released.push_back({block, 1});
    }
    low_water_ = std::min(low_water_, kept_blocks());
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
  kept_run_blocks_ -= out.count;
  low_water_ = std::min(low_water_, kept_blocks());
  return true;
}

Result<uint32_t> PageHeap::grow(uint32_t count) {
  auto first = blocks_.grow(count);
  if (first.ok()) return first;
  release_kept();
  return blocks_.grow(count);
}

}  // namespace be::memory
