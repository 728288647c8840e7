// A device's control memory: one sparse, sealed memfd that peers map (shared_layout.h).
//
// Pages are backed before they are used (fallocate), so shortage is a Status, never SIGBUS.
// allocate and free: any thread. The rest hands out addresses of fixed places.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "be/base/status.h"
#include "be/base/unique_fd.h"
#include "be/softnic/shared_layout.h"

namespace be::softnic {

// First fit over [0, size), in units of `granule`. Not thread-safe.
class RangeAllocator {
 public:
  RangeAllocator(uint64_t begin, uint64_t size, uint64_t granule);
  uint64_t round(uint64_t bytes) const { return (bytes + granule_ - 1) / granule_ * granule_; }
  bool allocate(uint64_t bytes, uint64_t* offset);  // false: no such gap
  void free(uint64_t offset, uint64_t bytes);

 private:
  const uint64_t granule_;
  std::map<uint64_t, uint64_t> gaps_;  // offset -> bytes, never adjacent
};

class ControlMemory {
 public:
  static Result<std::unique_ptr<ControlMemory>> create(size_t staging_bytes);
  ~ControlMemory();
  ControlMemory(const ControlMemory&) = delete;
  ControlMemory& operator=(const ControlMemory&) = delete;

  int fd() const { return fd_.get(); }
  size_t size() const { return size_; }
  uint8_t* at(uint64_t offset) { return base_ + offset; }
  uint64_t offset_of(const void* place) const {
    return static_cast<uint64_t>(static_cast<const uint8_t*>(place) - base_);
  }

  Doorbell* doorbell(uint32_t index);
  QueuePairBlock* queue_pair(uint32_t index);
  RegionEntry* regions();

  // A ring of `depth` zeroed slots.
  Result<Slot*> allocate_ring(uint32_t depth);
  void free_ring(Slot* ring, uint32_t depth);

  // Null: the staging area is full (or the host's memory is).
  uint8_t* allocate_staging(uint64_t bytes);
  void free_staging(uint8_t* place, uint64_t bytes);

 private:
  ControlMemory(UniqueFd fd, uint8_t* base, size_t size, uint64_t staging, size_t staging_bytes);

  UniqueFd fd_;
  uint8_t* const base_;
  const size_t size_;
  const uint64_t staging_begin_;
  const uint64_t staging_bytes_;
  std::mutex mutex_;
  RangeAllocator rings_;
  RangeAllocator staging_;
  bool staging_backed_ = false;
};

}  // namespace be::softnic
