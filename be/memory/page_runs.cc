#include "be/memory/page_runs.h"

#include <algorithm>
#include <bit>
#include <cassert>

namespace be::memory {

PageRuns::PageRuns(uint32_t pages_per_block, size_t block_count)
    : pages_per_block_(pages_per_block),
      pages_(pages_per_block * block_count),
      heads_(pages_per_block + 1, kNoPage),
      non_empty_(pages_per_block / 64 + 1) {}

void PageRuns::add_block(uint32_t block) { insert(block * pages_per_block_, pages_per_block_); }

uint32_t PageRuns::take_block() {
  const uint32_t first = heads_[pages_per_block_];
  if (first == kNoPage) return kNoBlock;
  remove(first);
  tag(first, pages_per_block_, false);
  return first / pages_per_block_;
}

uint32_t PageRuns::take(uint32_t pages, uint32_t alignment) {
  assert(pages > 0 && pages <= pages_per_block_ && alignment <= pages_per_block_);
  assert(pages_per_block_ % alignment == 0);
  // A run of that length has an aligned part that is long enough wherever it begins.
  const uint32_t sure = std::min(pages + alignment - 1, pages_per_block_);
  const uint32_t bin = shortest_bin(sure);
  const uint32_t free_first = bin != 0 ? heads_[bin] : find_aligned(pages, sure, alignment);
  if (free_first == kNoPage) return kNoPage;
  const uint32_t found = pages_[free_first].length;
  const uint32_t first = (free_first + alignment - 1) & ~(alignment - 1);
  const uint32_t before = first - free_first;
  remove(free_first);
  if (before > 0) insert(free_first, before);
  if (found > before + pages) insert(first + pages, found - before - pages);
  tag(first, pages, false);
  used_pages_ += pages;
  ++used_runs_;
  return first;
}

void PageRuns::give(uint32_t first_page) {
  uint32_t first = first_page;
  uint32_t length = pages_[first].length;
  assert(!pages_[first].free && length > 0);
  used_pages_ -= length;
  --used_runs_;
  if (first % pages_per_block_ != 0 && pages_[first - 1].free) {
    const uint32_t before = pages_[first - 1].length;
    first -= before;
    length += before;
    remove(first);
  }
  const uint32_t behind = first + length;
  if (behind % pages_per_block_ != 0 && pages_[behind].free) {
    length += pages_[behind].length;
    remove(behind);
  }
  insert(first, length);
}

// Among the free runs shorter than `sure`: one with an aligned part of `pages` pages, or kNoPage.
// Looks at each of them: for the rare alignment above a page that would make the heap grow.
uint32_t PageRuns::find_aligned(uint32_t pages, uint32_t sure, uint32_t alignment) const {
  for (uint32_t bin = shortest_bin(pages); bin != 0 && bin < sure; bin = shortest_bin(bin + 1)) {
    for (uint32_t first = heads_[bin]; first != kNoPage; first = pages_[first].next) {
      const uint32_t before = -first & (alignment - 1);
      if (before + pages <= bin) return first;
    }
  }
  return kNoPage;
}

void PageRuns::insert(uint32_t first, uint32_t length) {
  tag(first, length, true);
  uint32_t& head = heads_[length];
  pages_[first].previous = kNoPage;
  pages_[first].next = head;
  if (head != kNoPage) pages_[head].previous = first;
  head = first;
  non_empty_[length / 64] |= uint64_t{1} << (length % 64);
  free_pages_ += length;
  if (length == pages_per_block_) ++free_blocks_;
}

void PageRuns::remove(uint32_t first) {
  const Page& page = pages_[first];
  uint32_t& head = heads_[page.length];
  if (page.next != kNoPage) pages_[page.next].previous = page.previous;
  if (page.previous != kNoPage) pages_[page.previous].next = page.next;
  if (head == first) head = page.next;
  if (head == kNoPage) non_empty_[page.length / 64] &= ~(uint64_t{1} << (page.length % 64));
  free_pages_ -= page.length;
  if (page.length == pages_per_block_) --free_blocks_;
}

void PageRuns::tag(uint32_t first, uint32_t length, bool free) {
  Page& last = pages_[first + length - 1];
  pages_[first].length = last.length = length;
  pages_[first].free = last.free = free;
}

// The smallest length >= pages with a free run; 0 if there is none.
uint32_t PageRuns::shortest_bin(uint32_t pages) const {
  uint64_t word = non_empty_[pages / 64] & (~uint64_t{0} << (pages % 64));
  for (size_t i = pages / 64;;) {
    if (word != 0) return static_cast<uint32_t>(i * 64 + std::countr_zero(word));
    if (++i == non_empty_.size()) return 0;
    word = non_empty_[i];
  }
}

}  // namespace be::memory
