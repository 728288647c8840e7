// Which memory is registered with which device, and under which keys.
//
//   run       `count` blocks that are one region: one ibv_mr a device, the same keys in the
//             record of each of its blocks, so that any pointer inside finds them by its block
//   adopted   the user's own memory, outside the range: found by an ordered search
//
//   a device's bit in a block's mask is set  <=>  the block is registered with it
//
// Every run and every adopted piece is registered with every device, at all times: what fails
// half-way is undone. Any thread; the lock is held across ibv_reg_mr, which is off the hot path.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <vector>

#include "be/base/status.h"
#include "be/memory/registered_pool.h"
#include "be/memory/reserved_range.h"
#include "be/verbs/device.h"

namespace be::memory {

class RegionTable {
 public:
  static constexpr size_t kMaxDevices = RegisteredPool::kMaxDevices;

  RegionTable(const ReservedRange& range, size_t block_bytes);

  // Index of the device. On failure no region of it is left.
  Result<size_t> add_device(Device* device);

  Status register_run(uint32_t first_block, uint32_t count);
  // On failure the run stays registered with the devices that refused, and must not be reused.
  Status deregister_run(uint32_t first_block);

  // The memory must not overlap the range or other adopted memory (kAlreadyExists).
  Status adopt(void* memory, size_t length);
  // On failure it stays registered with the devices that refused, and must not be given back.
  Status forget_adopted(void* memory);
  const RegionKeys* adopted(const void* pointer, size_t device_index) const;

  // Before the devices go: deregisters whatever is left. Nothing may be registered afterwards.
  void deregister_all();

  const std::atomic<uint8_t>* masks() const { return masks_.get(); }
  const RegionKeys* keys() const { return keys_.get(); }
  uint64_t registrations() const { return registrations_.load(std::memory_order_relaxed); }
  uint64_t deregistrations() const { return deregistrations_.load(std::memory_order_relaxed); }

 private:
  struct Region {
    uint8_t* address = nullptr;
    size_t length = 0;
    Backing backing;
    std::array<ibv_mr*, kMaxDevices> regions{};
    std::array<RegionKeys, kMaxDevices> keys{};
  };

  Status register_with(size_t device_index, Region& region);
  Status register_with_all(Region& region);
  Status deregister_from(size_t device_index, Region& region);
  Status deregister_from_all(Region& region);
  void publish(uint32_t first_block, const Region& region);

  const ReservedRange& range_;
  const size_t block_bytes_;
  std::unique_ptr<std::atomic<uint8_t>[]> masks_;  // by block
  std::unique_ptr<RegionKeys[]> keys_;             // by block, kMaxDevices each

  mutable std::shared_mutex mutex_;  // the rest
  std::vector<Device*> devices_;
  std::map<uint32_t, Region> runs_;      // by first block
  std::map<uintptr_t, Region> adopted_;  // by address
  std::atomic<uint64_t> registrations_ = 0;
  std::atomic<uint64_t> deregistrations_ = 0;
};

}  // namespace be::memory
