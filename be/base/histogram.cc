#include "be/base/histogram.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace be {

// Values below 2^kStepBits have buckets of their own; above, the top kStepBits + 1 bits of a
// value (the first of them is 1) and the number of bits below them name the bucket.
int Histogram::bucket_of(uint64_t value) {
  constexpr uint64_t kSteps = 1u << kStepBits;
  if (value < kSteps) return static_cast<int>(value);
  const int shift = std::bit_width(value) - 1 - kStepBits;
  const int step = static_cast<int>((value >> shift) & (kSteps - 1));
  return ((shift + 1) << kStepBits) + step;
}

uint64_t Histogram::upper_bound_of(int bucket) {
  constexpr uint64_t kSteps = 1u << kStepBits;
  const int group = bucket >> kStepBits;
  if (group == 0) return static_cast<uint64_t>(bucket);
  const uint64_t top_bits = kSteps + (static_cast<uint64_t>(bucket) & (kSteps - 1));
  return ((top_bits + 1) << (group - 1)) - 1;  // the last bucket wraps to UINT64_MAX: right
}

void Histogram::record(uint64_t value) {
  ++buckets_[static_cast<size_t>(bucket_of(value))];
  ++count_;
  min_ = std::min(min_, value);
  max_ = std::max(max_, value);
  sum_ += static_cast<double>(value);
}

void Histogram::add(const Histogram& other) {
  for (size_t i = 0; i < buckets_.size(); ++i) buckets_[i] += other.buckets_[i];
  count_ += other.count_;
  min_ = std::min(min_, other.min_);
  max_ = std::max(max_, other.max_);
  sum_ += other.sum_;
}

void Histogram::clear() { *this = Histogram(); }

uint64_t Histogram::percentile(double fraction) const {
  if (count_ == 0) return 0;
  // 0.07 * 100 is a little above 7 in binary: the small subtraction keeps the rank at 7.
  const double rank = std::ceil(fraction * static_cast<double>(count_) - 1e-6);
  const uint64_t wanted =
      rank < 1 ? 1 : std::min(count_, static_cast<uint64_t>(std::min(rank, 1e18)));
  uint64_t seen = 0;
  for (int bucket = 0; bucket < kBuckets; ++bucket) {
    seen += buckets_[static_cast<size_t>(bucket)];
    if (seen >= wanted) return std::clamp(upper_bound_of(bucket), min_, max_);
  }
  return max_;
}

}  // namespace be
