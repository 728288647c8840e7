#include "be/ps/row_store.h"

#include <algorithm>

#include "be/base/hash.h"

namespace be::ps {

RowStore::RowStore(size_t row_floats)
    : row_floats_(row_floats),
      rows_per_chunk_(std::max(size_t{1}, (size_t{64} << 10) / (row_floats * sizeof(float)))) {}

size_t RowStore::slot_of(Key key) const {
  // The low bits: the high ones chose the virtual shard and are all alike here.
  const size_t mask = slots_.size() - 1;
  size_t at = mix64(key) & mask;
  while (slots_[at].row_plus_one != 0 && slots_[at].key != key) at = (at + 1) & mask;
  return at;
}

float* RowStore::row(size_t index) const {
  return chunks_[index / rows_per_chunk_].get() + index % rows_per_chunk_ * row_floats_;
}

const float* RowStore::find(Key key) const {
  if (slots_.empty()) return nullptr;
  const Slot& slot = slots_[slot_of(key)];
  return slot.row_plus_one != 0 ? row(slot.row_plus_one - 1) : nullptr;
}

RowStore::Row RowStore::find_or_insert(Key key) {
  if (slots_.size() * 3 <= (rows_ + 1) * 4) grow();
  Slot& slot = slots_[slot_of(key)];
  if (slot.row_plus_one != 0) return {row(slot.row_plus_one - 1), false};
  if (rows_ == chunks_.size() * rows_per_chunk_) {
    chunks_.push_back(std::make_unique_for_overwrite<float[]>(rows_per_chunk_ * row_floats_));
  }
  slot = {key, static_cast<uint32_t>(++rows_)};
  return {row(rows_ - 1), true};
}

void RowStore::grow() {
  std::vector<Slot> old(slots_.empty() ? 16 : slots_.size() * 2);
  old.swap(slots_);
  for (const Slot& slot : old) {
    if (slot.row_plus_one != 0) slots_[slot_of(slot.key)] = slot;
  }
}

size_t RowStore::memory_bytes() const {
  return slots_.capacity() * sizeof(Slot) +
         chunks_.size() * rows_per_chunk_ * row_floats_ * sizeof(float);
}

}  // namespace be::ps
