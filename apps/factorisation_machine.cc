#include "apps/factorisation_machine.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace be::apps {

float FactorisationMachine::score(std::span<const float> rows) {
  std::fill(sums_.begin(), sums_.end(), 0.0f);
  float linear = rows[0];
  float squares = 0;
  for (size_t row = dim(); row < rows.size(); row += dim()) {
    linear += rows[row];
    for (size_t f = 0; f < factors_; ++f) {
      const float v = rows[row + 1 + f];
      sums_[f] += v;
      squares += v * v;
    }
  }
  float pairs = -squares;
  for (const float sum : sums_) pairs += sum * sum;
  return linear + 0.5f * pairs;
}

float FactorisationMachine::add_gradients(std::span<const float> rows, bool liked,
                                          std::span<float> gradients) {
  const float y = score(rows);
  const float slope = probability(y) - (liked ? 1.0f : 0.0f);
  gradients[0] += slope;
  for (size_t row = dim(); row < rows.size(); row += dim()) {
    gradients[row] += slope + l2_ * rows[row];
    for (size_t f = 0; f < factors_; ++f) {
      const float v = rows[row + 1 + f];
      gradients[row + 1 + f] += slope * (sums_[f] - v) + l2_ * v;
    }
  }
  // log(1 + exp(-m)) without overflow.
  const float margin = liked ? y : -y;
  return std::max(0.0f, -margin) + std::log1p(std::exp(-std::abs(margin)));
}

float probability(float score) { return 1.0f / (1.0f + std::exp(-score)); }

double area_under_curve(const std::vector<float>& scores, const std::vector<bool>& liked) {
  std::vector<size_t> order(scores.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return scores[a] < scores[b]; });
  double rank_sum = 0;
  double positives = 0;
  for (size_t begin = 0, end = 0; begin < order.size(); begin = end) {
    while (end < order.size() && scores[order[end]] == scores[order[begin]]) ++end;
    const double rank = 0.5 * static_cast<double>(begin + 1 + end);  // shared by equal scores
    for (size_t i = begin; i < end; ++i) {
      if (!liked[order[i]]) continue;
      rank_sum += rank;
      ++positives;
    }
  }
  const double negatives = static_cast<double>(scores.size()) - positives;
  if (positives == 0 || negatives == 0) return std::numeric_limits<double>::quiet_NaN();
  return (rank_sum - positives * (positives + 1) / 2) / (positives * negatives);
}

}  // namespace be::apps
