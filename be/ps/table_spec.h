// TableSpec: everything that makes a table what it is; equal specs behave alike, bit for bit.
//
//   row of key k = dim values, at first hash(seed, table, k), then moved by the optimizer
//
// Plain values, any thread. check() names the property that is impossible.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "be/base/status.h"
#include "be/ps/optimizer.h"

namespace be::ps {

using Key = uint64_t;

// Hash of "model/name": names the table in Fetch and Push. A server refuses a second name with
// the id of the first.
using TableId = uint64_t;
TableId table_id(std::string_view full_name);

struct TableSpec {
  static constexpr uint32_t kMaxDim = 4096;
  static constexpr size_t kMaxNameBytes = 128;

  std::string model{};
  std::string name{};
  uint32_t dim = 0;  // values in a row
  OptimizerSpec optimizer{};
  float initial_scale = 0.0f;  // initial values are uniform in [-scale, scale)
  uint64_t seed = 0;

  bool operator==(const TableSpec&) const = default;

  std::string full_name() const { return model + "/" + name; }
  TableId id() const { return table_id(full_name()); }
  Status check() const;
  std::string to_string() const;  // "fm/features: dim 9, adagrad(...), ..."
};

}  // namespace be::ps
