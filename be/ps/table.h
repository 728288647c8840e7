// Table: the rows that one server holds of one table, by virtual shard.
//
//   Table = spec + 64 x { lock, RowStore }          (those it does not own stay empty)
//
// Reads never insert: a key without a row gives its initial values and is marked missing. The
// first push makes the row from the same initial values, so both agree.
//
// Any thread. A lock guards one virtual shard and is held for one run of keys at a time, a
// microsecond or so: an I/O thread may read while a worker writes. Who wants pushes of a virtual
// shard applied in arrival order applies them from one thread (ParameterServer's strands).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>

#include "be/ps/row_store.h"
#include "be/ps/table_spec.h"
#include "be/ps/view.h"
#include "be/ps/wire.h"

namespace be::ps {

class Table {
 public:
  explicit Table(TableSpec spec);  // spec.check() is ok

  const TableSpec& spec() const { return spec_; }
  TableId id() const { return id_; }

  // values: keys.size() * dim floats. missing: bitmap of ceil(keys.size() / 8) bytes, written
  // whole. Returns how many are missing.
  size_t read(Unaligned<Key> keys, std::span<float> values, std::span<uint8_t> missing) const;

  // Applies the gradient of every key whose virtual shard `wanted` accepts. Returns how many rows
  // were made. gradients: keys.size() * dim, finite.
  template <typename Wanted>
  size_t apply(Unaligned<Key> keys, Unaligned<float> gradients, Wanted&& wanted);

  struct Size {
    size_t rows = 0;
    size_t memory_bytes = 0;
  };
  Size size() const;

 private:
  struct Shard {
    explicit Shard(size_t row_floats) : rows(row_floats) {}
    mutable std::mutex mutex;
    RowStore rows;
  };

  // End of the run of keys from `begin` on that lie in the virtual shard of the first.
  static size_t run_end(Unaligned<Key> keys, size_t begin, uint32_t virtual_shard);
  size_t apply_run(Shard& shard, Unaligned<Key> keys, Unaligned<float> gradients, size_t begin,
                   size_t end);

  const TableSpec spec_;
  const TableId id_;
  std::array<std::unique_ptr<Shard>, kVirtualShards> shards_;
};

template <typename Wanted>
size_t Table::apply(Unaligned<Key> keys, Unaligned<float> gradients, Wanted&& wanted) {
  size_t created = 0;
  for (size_t begin = 0, end = 0; begin < keys.size(); begin = end) {
    const uint32_t shard = virtual_shard_of(keys[begin]);
    end = run_end(keys, begin, shard);
    if (wanted(shard)) created += apply_run(*shards_[shard], keys, gradients, begin, end);
  }
  return created;
}

}  // namespace be::ps
