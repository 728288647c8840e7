#include "be/base/hash.h"

#include <gtest/gtest.h>

#include <bit>
#include <unordered_set>

namespace be {
namespace {

// The published first outputs of splitmix64 seeded with 0 and with 1234567.
TEST(Mix64, GivesThePublishedValues) {
  static_assert(mix64(uint64_t{0}) == 0xe220a8397b1dcdaf);
  EXPECT_EQ(mix64(uint64_t{1234567}), 6457827717110365317u);
}

TEST(Mix64, EachInputBitChangesAboutHalfOfTheOutputBits) {
  for (int bit = 0; bit < 64; ++bit) {
    int changed = 0;
    for (uint64_t value = 0; value < 256; ++value) {
      changed += std::popcount(mix64(value) ^ mix64(value ^ (uint64_t{1} << bit)));
    }
    EXPECT_NEAR(changed / 256.0, 32, 2) << "input bit " << bit;
  }
}

TEST(Mix64, PairsOfSmallNumbersDoNotCollideAndOrderMatters) {
  std::unordered_set<uint64_t> seen;
  for (uint64_t first = 0; first < 200; ++first) {
    for (uint64_t second = 0; second < 200; ++second) {
      EXPECT_TRUE(seen.insert(mix64(first, second)).second);
    }
  }
}

}  // namespace
}  // namespace be
