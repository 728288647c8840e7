// Distribution of non-negative integers (latencies in ns, sizes in bytes) in constant memory.
//
// Log-linear buckets: 64 linear steps within each power of two, so a percentile is at most
// 1/64 above the true value; count, minimum and maximum are exact, so is a sum up to 2^53.
// 30 KiB each.
// Not thread-safe: one per thread, merged by add().
#pragma once

#include <array>
#include <cstdint>

namespace be {

class Histogram {
 public:
  void record(uint64_t value);
  void add(const Histogram& other);
  void clear();

  uint64_t count() const { return count_; }
  uint64_t min() const { return count_ ? min_ : 0; }
  uint64_t max() const { return max_; }
  double mean() const { return count_ ? sum_ / static_cast<double>(count_) : 0; }
  uint64_t percentile(
      double fraction) const;  // 0.99: smallest bucket bound that covers 99 %; <= max()

 private:
  static constexpr int kStepBits = 6;
  static constexpr int kBuckets = (64 - kStepBits + 1) << kStepBits;
  static int bucket_of(uint64_t value);
  static uint64_t upper_bound_of(int bucket);

  std::array<uint64_t, kBuckets> buckets_{};
  uint64_t count_ = 0;
  uint64_t min_ = UINT64_MAX;
  uint64_t max_ = 0;
  double sum_ = 0;
};

}  // namespace be
