#include "apps/factorisation_machine.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace be::apps {
namespace {

TEST(FactorisationMachine, ScoreIsBiasPlusWeightsPlusAllPairsOfFactors) {
  FactorisationMachine machine(2, 0);
  const std::vector<float> rows = {
      0.5f, 9, 9,   // bias: its factors are not used
      1,    2, 3,   //
      -2,   4, 5,   //
      4,    1, -1,  //
  };
  const float pairs = (2 * 4 + 3 * 5) + (2 * 1 - 3 * 1) + (4 * 1 - 5 * 1);
  EXPECT_FLOAT_EQ(machine.score(rows), 0.5f + 1 - 2 + 4 + pairs);
}

TEST(FactorisationMachine, GradientsAreTheSlopesOfTheLoss) {
  const std::vector<float> rows = {0.1f, 0, 0, 0.3f, -0.2f, 0.4f, -0.1f, 0.5f, 0.2f};
  for (const bool liked : {false, true}) {
    FactorisationMachine machine(2, 0);
    std::vector<float> gradients(rows.size()), unused(rows.size());
    machine.add_gradients(rows, liked, gradients);
    for (size_t i = 0; i < rows.size(); ++i) {
      constexpr float kStep = 1e-2f;
      std::vector<float> up = rows, down = rows;
      up[i] += kStep;
      down[i] -= kStep;
      const float slope =
          (machine.add_gradients(up, liked, unused) - machine.add_gradients(down, liked, unused)) /
          (2 * kStep);
      EXPECT_NEAR(gradients[i], slope, 1e-3f) << i;
    }
  }
}

TEST(FactorisationMachine, ThePenaltyPullsEveryRowButTheBiasToZero) {
  const std::vector<float> rows = {5, 0, 0, 3, 2, -1};
  std::vector<float> plain(rows.size()), penalised(rows.size());
  FactorisationMachine(2, 0).add_gradients(rows, true, plain);
  FactorisationMachine(2, 0.5f).add_gradients(rows, true, penalised);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(penalised[i], plain[i]);
  for (size_t i = 3; i < 6; ++i) EXPECT_FLOAT_EQ(penalised[i] - plain[i], 0.5f * rows[i]);
}

TEST(FactorisationMachine, LossOfExtremeScoresIsFinite) {
  FactorisationMachine machine(1, 0);
  std::vector<float> gradients(2);
  EXPECT_FLOAT_EQ(machine.add_gradients(std::vector<float>{200, 0}, false, gradients), 200);
  EXPECT_FLOAT_EQ(machine.add_gradients(std::vector<float>{-200, 0}, false, gradients), 0);
}

TEST(AreaUnderCurve, CountsTheOrderedPairs) {
  EXPECT_DOUBLE_EQ(area_under_curve({1, 2, 3, 4}, {false, false, true, true}), 1.0);
  EXPECT_DOUBLE_EQ(area_under_curve({4, 3, 2, 1}, {false, false, true, true}), 0.0);
  EXPECT_DOUBLE_EQ(area_under_curve({1, 2, 3, 4}, {false, true, false, true}), 0.75);
  EXPECT_DOUBLE_EQ(area_under_curve({7, 7, 7}, {false, true, true}), 0.5);
  EXPECT_TRUE(std::isnan(area_under_curve({1, 2}, {true, true})));
}

}  // namespace
}  // namespace be::apps
