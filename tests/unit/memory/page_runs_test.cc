#include "be/memory/page_runs.h"

#include <gtest/gtest.h>

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
  uint32_t length_of_free_run_at(uint32_t first) const {
    uint32_t length = 0;
    for (uint32_t page = first; page < block_end(first) && !used_[page]; ++page) ++length;
    return length;
  }
  bool begins_free_run(uint32_t page) const {
    return !used_[page] && (page % pages_per_block_ == 0 || used_[page - 1]);
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
      : runs(pages_per_block, blocks), simple(pages_per_block, blocks) {
    for (uint32_t block = 0; block < blocks; ++block) runs.add_block(block);
  }
  void take(uint32_t pages) {
    const uint32_t best = simple.best_length(pages);
    const uint32_t first = runs.take(pages);
    ASSERT_EQ(first == kNoPage, best == 0);
    if (first == kNoPage) return;
    ASSERT_TRUE(simple.begins_free_run(first));
    ASSERT_EQ(simple.length_of_free_run_at(first), best) << "not the best fit";
    ASSERT_EQ(runs.length(first), pages);
    simple.set(first, pages, true);
    out[first] = pages;
  }
  void give(uint32_t first) {
    runs.give(first);
    simple.set(first, out[first], false);
    out.erase(first);
  }
  void compare() {
    ASSERT_EQ(runs.free_pages(), simple.free_pages());
    ASSERT_EQ(runs.free_blocks(), simple.free_blocks());
  }
  PageRuns runs;
  SimplePages simple;
  std::map<uint32_t, uint32_t> out;  // first page -> pages
};

TEST(PageRuns, BehavesLikeASearchOfAllPages) {
  std::mt19937 random(1);
  for (int round = 0; round < 50; ++round) {
    Pair pair(round % 2 == 0 ? 16 : 130, 3);
    const uint32_t largest = round % 2 == 0 ? 16 : 130;
    for (int step = 0; step < 400; ++step) {
      if (pair.out.empty() || random() % 5 < 3) {
        pair.take(1 + random() % (random() % 4 == 0 ? largest : 5));
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
