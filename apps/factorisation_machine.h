// Second-order factorisation machine with binary features, logistic loss.
//
//   score(x) = bias + sum_i w_i + sum_{i<j} <v_i, v_j>
//            = bias + sum_i w_i + 1/2 sum_f [ (sum_i v_if)^2 - sum_i v_if^2 ]
//
//   row of feature i: [ w_i | v_i1 .. v_ik ]; the bias is the row of kBiasKey, whose factors stay
//   unused: an example's first row is always the bias.
//
// Gradients are of  log(1 + exp(-y score)) + l2/2 |row|^2  (no penalty on the bias), one example at
// a time, and are added to what `gradients` holds. Float arithmetic in a fixed order: the same
// rows give the same bits.
//
// Pure, any thread. Rendle, "Factorization Machines", ICDM 2010.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace be::apps {

class FactorisationMachine {
 public:
  FactorisationMachine(size_t factors, float l2) : factors_(factors), l2_(l2), sums_(factors) {}

  size_t dim() const { return 1 + factors_; }

  // rows: those of one example, dim() floats each, the bias first.
  float score(std::span<const float> rows);

  // Returns the loss of the example, without penalty. gradients.size() == rows.size().
  float add_gradients(std::span<const float> rows, bool liked, std::span<float> gradients);

 private:
  const size_t factors_;
  const float l2_;
  std::vector<float> sums_;  // sum_i v_if of the example scored last
};

float probability(float score);  // 1 / (1 + exp(-score))

// Area under the ROC curve: the chance that a liked example scores above one that is not; equal
// scores count half. Not a number if either kind is absent.
double area_under_curve(const std::vector<float>& scores, const std::vector<bool>& liked);

}  // namespace be::apps
