#include "be/ps/optimizer.h"

#include <algorithm>
#include <cmath>

namespace be::ps {

std::string_view optimizer_name(OptimizerKind kind) {
  switch (kind) {
    case OptimizerKind::kSgd:
      return "sgd";
    case OptimizerKind::kAdagrad:
      return "adagrad";
  }
  return "unknown optimizer";
}

Status OptimizerSpec::check() const {
  if (kind != OptimizerKind::kSgd && kind != OptimizerKind::kAdagrad) {
    return error(Code::kInvalidArgument, "optimizer {} is not known", static_cast<int>(kind));
  }
  if (!std::isfinite(learning_rate) || learning_rate <= 0) {
    return error(Code::kInvalidArgument, "learning_rate {} is not a number > 0", learning_rate);
  }
  if (kind == OptimizerKind::kAdagrad &&
      (!std::isfinite(initial_accumulator) || initial_accumulator <= 0)) {
    return error(Code::kInvalidArgument, "initial_accumulator {} is not a number > 0",
                 initial_accumulator);
  }
  return ok_status();
}

std::string OptimizerSpec::to_string() const {
  if (kind == OptimizerKind::kAdagrad) {
    return fmt::format("adagrad(rate {}, initial accumulator {})", learning_rate,
                       initial_accumulator);
  }
  return fmt::format("{}(rate {})", optimizer_name(kind), learning_rate);
}

void OptimizerSpec::init_state(std::span<float> state) const {
  std::fill(state.begin(), state.end(), initial_accumulator);
}

void OptimizerSpec::apply(std::span<float> values, std::span<float> state,
                          std::span<const float> gradient) const {
  switch (kind) {
    case OptimizerKind::kSgd:
      for (size_t i = 0; i < values.size(); ++i) values[i] -= learning_rate * gradient[i];
      return;
    case OptimizerKind::kAdagrad:
      for (size_t i = 0; i < values.size(); ++i) {
        state[i] += gradient[i] * gradient[i];
        values[i] -= learning_rate * gradient[i] / std::sqrt(state[i]);
      }
      return;
  }
}

}  // namespace be::ps
