// Registered memory of one device: a private table for our own use, a public one for peers.
//
// The public entry exists only for memory behind the data memfd; for other memory peers find
// no key and are refused. The private table is what local keys are checked against: peers can
// write to the public one.
//
// add and remove: any thread. find: any thread, no lock; the caller has the key from add, and
// remove must not run while the key is in use (ibv_dereg_mr(3)).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "be/softnic/shared_layout.h"
#include "be/verbs/rc/memory_key.h"

namespace be::softnic {

inline constexpr uint64_t kPrivateMemory = UINT64_MAX;

struct LocalRegion {
  std::atomic<uint32_t> key;
  rc::Region region;
  uint64_t file_offset;  // in the data memfd, or kPrivateMemory
};

class RegionTable {
 public:
  explicit RegionTable(RegionEntry* shared);
  ~RegionTable();
  RegionTable(const RegionTable&) = delete;
  RegionTable& operator=(const RegionTable&) = delete;

  uint32_t add(const rc::Region& region, uint64_t file_offset);  // 0: the table is full
  bool remove(uint32_t key);                                     // false: no such key

  // Null: no region of this key, or it does not allow this. `needed`: IBV_ACCESS_* bits.
  const LocalRegion* find(uint32_t key, uint64_t address, uint64_t length, uint32_t needed) const {
    const uint32_t index = rc::key_index(key);
    if (index >= kMaxRegions || key == 0) return nullptr;
    const LocalRegion& entry = entries_[index];
    if (entry.key.load(std::memory_order_acquire) != key) return nullptr;
    return entry.region.allows(address, length, needed) ? &entry : nullptr;
  }

 private:
  RegionEntry* const shared_;
  LocalRegion* entries_;  // zero pages until used
  std::mutex mutex_;
  std::vector<uint32_t> free_;
  std::vector<uint16_t> generations_;  // of the entries used so far
};

}  // namespace be::softnic
