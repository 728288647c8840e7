// Optimizers: how a pushed gradient moves one row.
//
//   SGD       w -= rate * g
//   Adagrad   a += g * g;  w -= rate * g / sqrt(a)        a starts at initial_accumulator > 0
//
// per coordinate, in float32, in the order of the coordinates: the same pushes in the same order
// give the same bits everywhere. State (Adagrad: a, one float a coordinate) is stored behind the
// row's values.
//
// Pure, any thread. Adagrad: Duchi, Hazan and Singer, JMLR 2011.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "be/base/status.h"

namespace be::ps {

// The numbers travel on the wire: never renumber.
enum class OptimizerKind : uint8_t { kSgd = 1, kAdagrad = 2 };
std::string_view optimizer_name(OptimizerKind kind);  // "sgd", "adagrad"

struct OptimizerSpec {
  OptimizerKind kind = OptimizerKind::kSgd;
  float learning_rate = 0.01f;
  float initial_accumulator = 0.1f;  // Adagrad only

  bool operator==(const OptimizerSpec&) const = default;
  Status check() const;
  std::string to_string() const;

  size_t state_floats(size_t dim) const { return kind == OptimizerKind::kAdagrad ? dim : 0; }
  void init_state(std::span<float> state) const;

  // values.size() == gradient.size(); state.size() == state_floats(values.size()).
  void apply(std::span<float> values, std::span<float> state,
             std::span<const float> gradient) const;
};

}  // namespace be::ps
