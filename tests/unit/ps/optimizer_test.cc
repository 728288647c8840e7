#include "be/ps/optimizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace be::ps {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(Optimizer, SgdMovesAgainstTheGradientByTheRate) {
  const OptimizerSpec sgd{OptimizerKind::kSgd, 0.5f, 0};
  std::vector<float> values = {1, 2};
  sgd.apply(values, {}, std::vector<float>{2, -4});
  EXPECT_THAT(values, ElementsAre(0, 4));
  EXPECT_EQ(sgd.state_floats(2), 0u);
}

TEST(Optimizer, AdagradDividesByTheRootOfTheSumOfSquares) {
  const OptimizerSpec adagrad{OptimizerKind::kAdagrad, 1.0f, 7.0f};
  std::vector<float> values = {10};
  std::vector<float> state(adagrad.state_floats(1));
  adagrad.init_state(state);
  EXPECT_THAT(state, ElementsAre(7));
  adagrad.apply(values, state, std::vector<float>{3});  // 7 + 9 = 16
  EXPECT_THAT(state, ElementsAre(16));
  EXPECT_THAT(values, ElementsAre(10 - 3.0f / 4));
  adagrad.apply(values, state, std::vector<float>{-3});  // 16 + 9 = 25
  EXPECT_THAT(state, ElementsAre(25));
  EXPECT_THAT(values, ElementsAre(10 - 3.0f / 4 + 3.0f / 5));
}

TEST(Optimizer, ImpossiblePropertiesAreNamed) {
  EXPECT_TRUE((OptimizerSpec{OptimizerKind::kAdagrad, 0.1f, 0.1f}).check().ok());
  EXPECT_TRUE((OptimizerSpec{OptimizerKind::kSgd, 0.1f, 0.0f}).check().ok());
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT((OptimizerSpec{OptimizerKind::kSgd, 0.0f, 1}).check().message(),
              HasSubstr("learning_rate 0"));
  EXPECT_THAT((OptimizerSpec{OptimizerKind::kSgd, nan, 1}).check().message(),
              HasSubstr("learning_rate nan"));
  EXPECT_THAT((OptimizerSpec{OptimizerKind::kAdagrad, 0.1f, 0.0f}).check().message(),
              HasSubstr("initial_accumulator 0"));
  EXPECT_THAT((OptimizerSpec{static_cast<OptimizerKind>(9), 0.1f, 0.1f}).check().message(),
              HasSubstr("optimizer 9"));
}

}  // namespace
}  // namespace be::ps
