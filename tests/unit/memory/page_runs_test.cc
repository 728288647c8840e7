#include "be/memory/page_runs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <vector>

namespace be::memory {
namespace {

// The same by brute force: a flag per page, the shortest sufficient gap by looking at all.
class SimplePages {
 public:
  SimplePages(uint32_t pages_per_block, uint32_t blocks)
      : pages_per_block_(pages_per_block), used_(pages_per_block * blocks) {}

  // Length of the shortest free run of at least `pages`; 0: none.
  uint32_t best_length(uint32_t pages) const {
    uint32_t best = 0;
    for (uint32_t length : free_runs()) {
      if (length >= pages && (best == 0 || length < best)) best = length;
    }
    return best;
  }
  // Of the free runs with an aligned part of `pages` pages.
  uint32_t best_length_with_aligned(uint32_t pages, uint32_t alignment) const {
    uint32_t best = 0;
    for (uint32_t first = 0; first < used_.size(); ++first) {
      if (!begins_free_run(first)) continue;
      const uint32_t length = length_of_free_run_at(first);
      const uint32_t before = (alignment - first % alignment) % alignment;
      if (before + pages <= length && (best == 0 || length < best)) best = length;
    }
    return best;
  }
  uint32_t length_of_free_run_at(uint32_t first) const {
    uint32_t length = 0;
    for (uint32_t page = first; page < block_end(first) && !used_[page]; ++page) ++length;
    return length;
  }
  bool begins_free_run(uint32_t page) const {
    return !used_[page] && (page % pages_per_block_ == 0 || used_[page - 1]);
  }
  uint32_t begin_of_free_run(uint32_t page) const {
    while (page % pages_per_block_ != 0 && !used_[page - 1]) --page;
    return page;
  }
  void set(uint32_t first, uint32_t count, bool used) {
    for (uint32_t page = first; page < first + count; ++page) {
      ASSERT_NE(used_[page], used) << "page " << page;
      used_[page] = used;
    }
  }
  size_t free_pages() const {
    size_t sum = 0;
    for (uint32_t length : free_runs()) sum += length;
    return sum;
  }
  size_t free_blocks() const {
    size_t sum = 0;
    for (uint32_t length : free_runs()) sum += length == pages_per_block_;
    return sum;
  }

 private:
  uint32_t block_end(uint32_t page) const {
    return (page / pages_per_block_ + 1) * pages_per_block_;
  }
  std::vector<uint32_t> free_runs() const {
    std::vector<uint32_t> runs;
    for (uint32_t page = 0; page < used_.size(); ++page) {
      if (begins_free_run(page)) runs.push_back(length_of_free_run_at(page));
    }
    return runs;
  }

  const uint32_t pages_per_block_;
  std::vector<bool> used_;
};

struct Pair {
  Pair(uint32_t pages_per_block, uint32_t blocks)
      : block_pages(pages_per_block),
        runs(pages_per_block, blocks),
        simple(pages_per_block, blocks) {
    for (uint32_t block = 0; block < blocks; ++block) runs.add_block(block);
  }
  void take(uint32_t pages, uint32_t alignment = 1) {
    // In a run of so many pages there is an aligned part wherever it begins; only if there is none
    // such are shorter ones searched.
    uint32_t best = simple.best_length(std::min(pages + alignment - 1, block_pages));
    if (best == 0) best = simple.best_length_with_aligned(pages, alignment);
    const uint32_t first = runs.take(pages, alignment);
    ASSERT_EQ(first == kNoPage, best == 0);
    if (first == kNoPage) return;
    ASSERT_EQ(first % alignment, 0u);
    const uint32_t begin = simple.begin_of_free_run(first);
    ASSERT_EQ(simple.length_of_free_run_at(begin), best) << "not the best fit";
    ASSERT_LT(first - begin, alignment) << "not the first aligned page of the run";
    ASSERT_EQ(runs.length(first), pages);
    simple.set(first, pages, true);
    out[first] = pages;
  }
  // Takes a free block away, or brings back the one that is away.
  void take_or_add_block() {
    if (away != kNoBlock) {
      runs.add_block(away);
      simple.set(away * block_pages, block_pages, false);
      away = kNoBlock;
      return;
    }
    const size_t free_blocks = simple.free_blocks();
    away = runs.take_block();
    ASSERT_EQ(away == kNoBlock, free_blocks == 0);
    if (away != kNoBlock) simple.set(away * block_pages, block_pages, true);
  }
  void give(uint32_t first) {
    runs.give(first);
    simple.set(first, out[first], false);
    out.erase(first);
  }
  void compare() {
    ASSERT_EQ(runs.free_pages(), simple.free_pages());
    ASSERT_EQ(runs.free_blocks(), simple.free_blocks());
    size_t used = 0;
    for (const auto& [first, pages] : out) {
      ASSERT_EQ(runs.length(first), pages);
      used += pages;
    }
    ASSERT_EQ(runs.used_pages(), used);
    ASSERT_EQ(runs.used_runs(), out.size());
  }
  const uint32_t block_pages;
  PageRuns runs;
  SimplePages simple;
  uint32_t away = kNoBlock;
  std::map<uint32_t, uint32_t> out;  // first page -> pages
};

TEST(PageRuns, BehavesLikeASearchOfAllPages) {
  std::mt19937 random(1);
  for (int round = 0; round < 50; ++round) {
    Pair pair(round % 2 == 0 ? 16 : 128, 3);
    const uint32_t largest = round % 2 == 0 ? 16 : 128;
    for (int step = 0; step < 400; ++step) {
      if (pair.out.empty() || random() % 5 < 3) {
        pair.take(1 + random() % (random() % 4 == 0 ? largest : 5), 1u << random() % 4);
      } else {
        pair.give(std::next(pair.out.begin(), random() % pair.out.size())->first);
      }
      pair.compare();
      if (::testing::Test::HasFatalFailure()) return;
    }
    while (!pair.out.empty()) pair.give(pair.out.begin()->first);
    EXPECT_EQ(pair.runs.free_blocks(), 3u) << "everything coalesces again";
  }
}

// Every sequence of six steps in a block of eight pages: take 1, 2, 3 or 5, or give the first,
// or the last.
TEST(PageRuns, EveryShortSequenceCoalescesCompletely) {
  constexpr int kSteps = 6;
  constexpr int kChoices = 6;
  int sequences = 1;
  for (int i = 0; i < kSteps; ++i) sequences *= kChoices;
  for (int sequence = 0; sequence < sequences; ++sequence) {
    Pair pair(8, 1);
    int rest = sequence;
    for (int step = 0; step < kSteps; ++step, rest /= kChoices) {
      switch (rest % kChoices) {
        case 4:
          if (!pair.out.empty()) pair.give(pair.out.begin()->first);
          break;
        case 5:
          if (!pair.out.empty()) pair.give(pair.out.rbegin()->first);
          break;
        default:
          pair.take(std::vector<uint32_t>{1, 2, 3, 5}[static_cast<size_t>(rest % kChoices)]);
      }
      pair.compare();
      ASSERT_FALSE(::testing::Test::HasFatalFailure()) << "sequence " << sequence;
    }
    while (!pair.out.empty()) pair.give(pair.out.begin()->first);
    ASSERT_EQ(pair.runs.free_blocks(), 1u) << "sequence " << sequence;
  }
}

// Every sequence of five steps in two blocks of four pages: take, aligned or not, give the first,
// the middle or the last, or take a block away and bring it back.
TEST(PageRuns, EveryShortSequenceOverTwoBlocksBehavesLikeASearch) {
  constexpr int kSteps = 5;
  constexpr int kChoices = 10;
  int sequences = 1;
  for (int i = 0; i < kSteps; ++i) sequences *= kChoices;
  for (int sequence = 0; sequence < sequences; ++sequence) {
    Pair pair(4, 2);
    int rest = sequence;
    for (int step = 0; step < kSteps; ++step, rest /= kChoices) {
      const int choice = rest % kChoices;
      if (choice < 4) {
        pair.take(static_cast<uint32_t>(choice + 1));
      } else if (choice == 4) {
        pair.take(1, 2);
      } else if (choice == 5) {
        pair.take(2, 4);
      } else if (choice == 9) {
        pair.take_or_add_block();
      } else if (!pair.out.empty()) {
        const size_t index = static_cast<size_t>(choice - 6) * (pair.out.size() - 1) / 2;
        pair.give(std::next(pair.out.begin(), static_cast<ptrdiff_t>(index))->first);
      }
      pair.compare();
      ASSERT_FALSE(::testing::Test::HasFatalFailure()) << "sequence " << sequence;
    }
    while (!pair.out.empty()) pair.give(pair.out.begin()->first);
    if (pair.away != kNoBlock) pair.take_or_add_block();
    ASSERT_EQ(pair.runs.free_blocks(), 2u) << "sequence " << sequence;
  }
}

TEST(PageRuns, AFreeBlockCanBeTakenOutAndAddedAgain) {
  PageRuns runs(16, 2);
  EXPECT_EQ(runs.take_block(), kNoBlock);
  EXPECT_EQ(runs.take(1), kNoPage);
  runs.add_block(1);
  const uint32_t page = runs.take(1);
  EXPECT_EQ(runs.take_block(), kNoBlock) << "in use";
  runs.give(page);
  EXPECT_EQ(runs.take_block(), 1u);
  EXPECT_EQ(runs.take(1), kNoPage);
  runs.add_block(1);
  EXPECT_EQ(runs.take(16), 16u);
}

}  // namespace
}  // namespace be::memory
