#include "be/base/histogram.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <random>
#include <vector>

namespace be {
namespace {

TEST(Histogram, EmptyGivesZeros) {
  const Histogram histogram;
  EXPECT_EQ(histogram.count(), 0u);
  EXPECT_EQ(histogram.min(), 0u);
  EXPECT_EQ(histogram.max(), 0u);
  EXPECT_EQ(histogram.mean(), 0);
  EXPECT_EQ(histogram.percentile(0.5), 0u);
}

TEST(Histogram, CountMinMaxAndMeanAreExact) {
  Histogram histogram;
  for (const uint64_t value : {7u, 1'000'003u, 12u}) histogram.record(value);
  EXPECT_EQ(histogram.count(), 3u);
  EXPECT_EQ(histogram.min(), 7u);
  EXPECT_EQ(histogram.max(), 1'000'003u);
  EXPECT_DOUBLE_EQ(histogram.mean(), 1'000'022 / 3.0);
}

TEST(Histogram, PercentilesOfSmallValuesAreExact) {
  Histogram histogram;
  for (uint64_t value = 1; value <= 100; ++value) histogram.record(value);
  EXPECT_EQ(histogram.percentile(0), 1u);
  EXPECT_EQ(histogram.percentile(0.07), 7u);
  EXPECT_EQ(histogram.percentile(0.5), 50u);
  EXPECT_EQ(histogram.percentile(0.99), 99u);
  EXPECT_EQ(histogram.percentile(1), 100u);
}

TEST(Histogram, PercentileIsAtMostOne64thAboveTheTrueValueAndNeverBelow) {
  std::mt19937_64 random(7);
  std::vector<uint64_t> values;
  Histogram histogram;
  for (int i = 0; i < 20'000; ++i) {
    const uint64_t value = random() >> (random() % 64);  // all magnitudes
    values.push_back(value);
    histogram.record(value);
  }
  std::sort(values.begin(), values.end());
  for (const double fraction : {0.001, 0.1, 0.25, 0.5, 0.9, 0.99, 0.999, 1.0}) {
    const auto rank = static_cast<size_t>(std::ceil(fraction * 20'000 - 1e-6));
    const uint64_t truth = values[rank - 1];
    const uint64_t answer = histogram.percentile(fraction);
    EXPECT_GE(answer, truth) << fraction;
    EXPECT_LE(answer - truth, truth / 64) << fraction;
  }
}

TEST(Histogram, LargestValueHasABucket) {
  Histogram histogram;
  histogram.record(UINT64_MAX);
  histogram.record(0);
  EXPECT_EQ(histogram.percentile(1), UINT64_MAX);
  EXPECT_EQ(histogram.percentile(0.5), 0u);
}

TEST(Histogram, AddingGivesWhatOneHistogramWouldHave) {
  Histogram first;
  Histogram second;
  Histogram together;
  for (uint64_t value = 0; value < 3000; value += 7) {
    (value % 2 ? first : second).record(value * value);
    together.record(value * value);
  }
  first.add(second);
  EXPECT_EQ(first.count(), together.count());
  EXPECT_EQ(first.min(), together.min());
  EXPECT_EQ(first.max(), together.max());
  EXPECT_DOUBLE_EQ(first.mean(), together.mean());
  for (const double fraction : {0.1, 0.5, 0.99}) {
    EXPECT_EQ(first.percentile(fraction), together.percentile(fraction));
  }
}

TEST(Histogram, ClearForgetsEverything) {
  Histogram histogram;
  histogram.record(5);
  histogram.clear();
  EXPECT_EQ(histogram.count(), 0u);
  histogram.record(9);
  EXPECT_EQ(histogram.min(), 9u);
  EXPECT_EQ(histogram.percentile(0.01), 9u);
}

}  // namespace
}  // namespace be
