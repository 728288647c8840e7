#include "be/softnic/region_table.h"

#include <cstdlib>
#include <new>

namespace be::softnic {

RegionTable::RegionTable(RegionEntry* shared) : shared_(shared) {
  entries_ = static_cast<LocalRegion*>(std::calloc(kMaxRegions, sizeof(LocalRegion)));
  if (entries_ == nullptr) throw std::bad_alloc();
}

RegionTable::~RegionTable() { std::free(entries_); }

uint32_t RegionTable::add(const rc::Region& region, uint64_t file_offset) {
  std::lock_guard lock(mutex_);
  uint32_t index = 0;
  if (!free_.empty()) {
    index = free_.back();
    free_.pop_back();
  } else if (generations_.size() < kMaxRegions) {
    index = static_cast<uint32_t>(generations_.size());
    generations_.push_back(0);
  } else {
    return 0;
  }
  const uint32_t generation = rc::next_generation(generations_[index]);
  generations_[index] = static_cast<uint16_t>(generation);
  const uint32_t key = rc::make_key(index, generation);

  LocalRegion& entry = entries_[index];
  entry.region = region;
  entry.file_offset = file_offset;
  entry.key.store(key, std::memory_order_release);
  if (file_offset != kPrivateMemory) {
    RegionEntry& shared = shared_[index];
    shared.access.store(region.access, std::memory_order_relaxed);
    shared.address.store(region.address, std::memory_order_relaxed);
    shared.length.store(region.length, std::memory_order_relaxed);
    shared.offset.store(file_offset, std::memory_order_relaxed);
    shared.key.store(key, std::memory_order_release);
  }
  return key;
}

bool RegionTable::remove(uint32_t key) {
  std::lock_guard lock(mutex_);
  const uint32_t index = rc::key_index(key);
  if (key == 0 || index >= generations_.size()) return false;
  LocalRegion& entry = entries_[index];
  if (entry.key.load(std::memory_order_relaxed) != key) return false;
  shared_[index].key.store(0, std::memory_order_seq_cst);
  entry.key.store(0, std::memory_order_release);
  free_.push_back(index);
  return true;
}

}  // namespace be::softnic
