// RowStore: key -> row of floats, the memory of one virtual shard of one table.
//
//   slots  [ key | row + 1 ] [ - | 0 ] ...   open addressing, linear probing, at most 3/4 full
//   rows   chunk 0: row 0 .. row c-1 | chunk 1: row c .. | ...     about 64 KiB a chunk
//
// Rows never move once made, so growing copies 16 bytes a key and no values. Rows are not
// removed one by one. A row is `row_floats` floats, the optimizer's state included; what it
// holds is the owner's affair.
//
// Pure. Not thread-safe: the virtual shard's lock guards it. Memory is the heap's, not
// registered: Fetch copies rows into a registered Buffer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "be/ps/table_spec.h"

namespace be::ps {

class RowStore {
 public:
  explicit RowStore(size_t row_floats);

  const float* find(Key key) const;  // null: no such row

  // The row of `key`, made with unspecified content if there was none (`inserted`).
  struct Row {
    float* floats;
    bool inserted;
  };
  Row find_or_insert(Key key);

  size_t size() const { return rows_; }
  size_t memory_bytes() const;

 private:
  struct Slot {
    Key key;
    uint32_t row_plus_one;  // 0: free
  };

  size_t slot_of(Key key) const;  // where it is, or the free slot where it would go
  float* row(size_t index) const;
  void grow();

  const size_t row_floats_;
  const size_t rows_per_chunk_;
  std::vector<Slot> slots_;  // a power of two, or none
  std::vector<std::unique_ptr<float[]>> chunks_;
  size_t rows_ = 0;
};

}  // namespace be::ps
