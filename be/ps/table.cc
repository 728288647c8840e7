#include "be/ps/table.h"

#include <algorithm>
#include <vector>

#include "be/ps/initial_values.h"

namespace be::ps {

Table::Table(TableSpec spec) : spec_(std::move(spec)), id_(spec_.id()) {
  const size_t row_floats = spec_.dim + spec_.optimizer.state_floats(spec_.dim);
  for (auto& shard : shards_) shard = std::make_unique<Shard>(row_floats);
}

size_t Table::run_end(Unaligned<Key> keys, size_t begin, uint32_t virtual_shard) {
  // A run is bounded so that nobody waits long for the lock.
  constexpr size_t kMaxRun = 64;
  size_t end = begin + 1;
  while (end < keys.size() && end - begin < kMaxRun &&
         virtual_shard_of(keys[end]) == virtual_shard) {
    ++end;
  }
  return end;
}

size_t Table::read(Unaligned<Key> keys, std::span<float> values, std::span<uint8_t> missing) const {
  std::fill(missing.begin(), missing.end(), uint8_t{0});
  size_t missed = 0;
  for (size_t begin = 0, end = 0; begin < keys.size(); begin = end) {
    const uint32_t number = virtual_shard_of(keys[begin]);
    end = run_end(keys, begin, number);
    const Shard& shard = *shards_[number];
    const std::lock_guard lock(shard.mutex);
    for (size_t i = begin; i < end; ++i) {
      const std::span<float> out = values.subspan(i * spec_.dim, spec_.dim);
      if (const float* row = shard.rows.find(keys[i])) {
        std::copy_n(row, spec_.dim, out.begin());
      } else {
        fill_initial_values(spec_, id_, keys[i], out);
        missing[i / 8] |= static_cast<uint8_t>(1u << (i % 8));
        ++missed;
      }
    }
  }
  return missed;
}

size_t Table::apply_run(Shard& shard, Unaligned<Key> keys, Unaligned<float> gradients, size_t begin,
                        size_t end) {
  const size_t dim = spec_.dim;
  const size_t state_floats = spec_.optimizer.state_floats(dim);
  thread_local std::vector<float> gradient;  // aligned copy of one row's
  gradient.resize(dim);
  size_t created = 0;
  const std::lock_guard lock(shard.mutex);
  for (size_t i = begin; i < end; ++i) {
    const auto [floats, inserted] = shard.rows.find_or_insert(keys[i]);
    const std::span<float> values(floats, dim);
    const std::span<float> state(floats + dim, state_floats);
    if (inserted) {
      fill_initial_values(spec_, id_, keys[i], values);
      spec_.optimizer.init_state(state);
      ++created;
    }
    gradients.copy(i * dim, gradient);
    spec_.optimizer.apply(values, state, gradient);
  }
  return created;
}

Table::Size Table::size() const {
  Size size;
  for (const auto& shard : shards_) {
    const std::lock_guard lock(shard->mutex);
    size.rows += shard->rows.size();
    size.memory_bytes += shard->rows.memory_bytes();
  }
  return size;
}

}  // namespace be::ps
