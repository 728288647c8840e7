// Initial values of a row: a hash of (seed, table, key), so every replica, every retry and every
// client that computes them itself gets the same bits, and nothing need be stored for a key that
// was never pushed.
//
//   value[i] = scale * u,   u uniform in [-1, 1) with 24 bits, from mix64(h + i),
//   h = mix64(mix64(seed, table), key)
//
// Pure, any thread, never fails.
#pragma once

#include <cstdint>
#include <span>

#include "be/base/hash.h"
#include "be/ps/table_spec.h"

namespace be::ps {

inline void fill_initial_values(const TableSpec& spec, TableId table, Key key,
                                std::span<float> values) {
  const uint64_t start = mix64(mix64(spec.seed, table), key);
  for (size_t i = 0; i < values.size(); ++i) {
    const auto bits = static_cast<float>(mix64(start + i) >> 40);  // exact: below 2^24
    values[i] = spec.initial_scale * (bits * 0x1p-23f - 1.0f);
  }
}

}  // namespace be::ps
