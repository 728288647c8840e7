#include "be/memory/region_table.h"

#include <fmt/format.h>

#include <string>

#include "be/base/log.h"

namespace be::memory {
namespace {

// What arrives in the pool is learnt of from completions, never by looking at memory: the order in
// which a NIC writes it may be relaxed, if the device has been told to (hardware.relaxed_ordering).
int access_for(const Device& device) {
  constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
  return device.kind() == DeviceKind::kHardware ? kAccess | IBV_ACCESS_RELAXED_ORDERING : kAccess;
}

}  // namespace

RegionTable::RegionTable(const ReservedRange& range, size_t block_bytes)
    : range_(range),
      block_bytes_(block_bytes),
      masks_(std::make_unique<std::atomic<uint8_t>[]>(range.bytes() / block_bytes)),
      keys_(std::make_unique<RegionKeys[]>(range.bytes() / block_bytes * kMaxDevices)) {}

Result<size_t> RegionTable::add_device(Device* device) {
  std::unique_lock lock(mutex_);
  if (devices_.size() == kMaxDevices) {
    return error(Code::kResourceExhausted, "device {} is one more than the {} that a pool takes",
                 device->name(), kMaxDevices);
  }
  const size_t index = devices_.size();
  devices_.push_back(device);
  Status status;
  for (auto& [first_block, region] : runs_) {
    if (status.ok()) status = register_with(index, region);
  }
  for (auto& [address, region] : adopted_) {
    if (status.ok()) status = register_with(index, region);
  }
  if (!status.ok()) {
    for (auto& [first_block, region] : runs_) deregister_from(index, region).ignore();
    for (auto& [address, region] : adopted_) deregister_from(index, region).ignore();
    devices_.pop_back();
    return status;
  }
  for (const auto& [first_block, region] : runs_) publish(first_block, region);
  return index;
}

Status RegionTable::register_run(uint32_t first_block, uint32_t count) {
  std::unique_lock lock(mutex_);
  const size_t offset = first_block * block_bytes_;
  Region region{.address = range_.base() + offset,
                .length = count * block_bytes_,
                .backing = {.fd = range_.fd(), .offset = offset}};
  BE_RETURN_IF_ERROR(register_with_all(region));
  publish(first_block, region);
  runs_.emplace(first_block, region);
  return ok_status();
}

Status RegionTable::deregister_run(uint32_t first_block) {
  std::unique_lock lock(mutex_);
  const auto found = runs_.find(first_block);
  Region& region = found->second;
  Status status = deregister_from_all(region);
  publish(first_block, region);
  if (status.ok()) runs_.erase(found);
  return status;
}

Status RegionTable::adopt(void* memory, size_t length) {
  std::unique_lock lock(mutex_);
  const auto begin = reinterpret_cast<uintptr_t>(memory);
  const auto range_begin = reinterpret_cast<uintptr_t>(range_.base());
  const auto after = adopted_.lower_bound(begin + length);  // first that begins behind us
  const bool overlaps_adopted = after != adopted_.begin() &&
                                std::prev(after)->first + std::prev(after)->second.length > begin;
  if (overlaps_adopted || (begin < range_begin + range_.bytes() && begin + length > range_begin)) {
    return error(Code::kAlreadyExists, "memory at {} of {} bytes is in the pool already", memory,
                 length);
  }
  Region region{.address = static_cast<uint8_t*>(memory), .length = length, .backing = {}};
  BE_RETURN_IF_ERROR(register_with_all(region));
  adopted_.emplace(begin, region);
  return ok_status();
}

Status RegionTable::forget_adopted(void* memory) {
  std::unique_lock lock(mutex_);
  const auto found = adopted_.find(reinterpret_cast<uintptr_t>(memory));
  if (found == adopted_.end()) return ok_status();  // deregister_all was before us
  BE_RETURN_IF_ERROR(deregister_from_all(found->second));
  adopted_.erase(found);
  return ok_status();
}

const RegionKeys* RegionTable::adopted(const void* pointer, size_t device_index) const {
  std::shared_lock lock(mutex_);
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  auto after = adopted_.upper_bound(address);
  if (after == adopted_.begin() || device_index >= devices_.size()) return nullptr;
  const Region& region = std::prev(after)->second;
  if (address - std::prev(after)->first >= region.length) return nullptr;
  return &region.keys[device_index];  // map nodes do not move
}

void RegionTable::deregister_all() {
  std::unique_lock lock(mutex_);
  for (auto& [first_block, region] : runs_) {
    if (Status status = deregister_from_all(region); !status.ok()) {
      log_error("memory stays registered: {}", status.to_string());
    }
    publish(first_block, region);
  }
  for (auto& [address, region] : adopted_) {
    if (Status status = deregister_from_all(region); !status.ok()) {
      log_error("adopted memory stays registered: {}", status.to_string());
    }
  }
  adopted_.clear();
  devices_.clear();
}

Status RegionTable::register_with(size_t device_index, Region& region) {
  Device* device = devices_[device_index];
  auto registered =
      device->register_memory(region.address, region.length, access_for(*device), region.backing);
  if (!registered.ok()) {
    return registered.status().with_context(
        fmt::format("registering {} bytes with device {}", region.length, device->name()));
  }
  registrations_.fetch_add(1, std::memory_order_relaxed);
  region.regions[device_index] = *registered;
  region.keys[device_index] = {.lkey = (*registered)->lkey, .rkey = (*registered)->rkey};
  return ok_status();
}

Status RegionTable::register_with_all(Region& region) {
  for (size_t i = 0; i < devices_.size(); ++i) {
    if (Status status = register_with(i, region); !status.ok()) {
      if (const Status undone = deregister_from_all(region); !undone.ok()) {
        log_error("memory stays registered: {}", undone.to_string());
      }
      return status;
    }
  }
  return ok_status();
}

Status RegionTable::deregister_from(size_t device_index, Region& region) {
  ibv_mr*& mr = region.regions[device_index];
  if (mr == nullptr) return ok_status();
  BE_RETURN_IF_ERROR(devices_[device_index]->deregister(mr).with_context(fmt::format(
      "deregistering {} bytes from device {}", region.length, devices_[device_index]->name())));
  deregistrations_.fetch_add(1, std::memory_order_relaxed);
  mr = nullptr;
  return ok_status();
}

Status RegionTable::deregister_from_all(Region& region) {
  Status first_failure;
  for (size_t i = 0; i < devices_.size(); ++i) {
    const Status status = deregister_from(i, region);
    if (first_failure.ok()) first_failure = status;
  }
  return first_failure;
}

void RegionTable::publish(uint32_t first_block, const Region& region) {
  uint8_t mask = 0;
  for (size_t i = 0; i < devices_.size(); ++i) {
    if (region.regions[i] != nullptr) mask |= static_cast<uint8_t>(1u << i);
  }
  const size_t end = first_block + region.length / block_bytes_;
  for (size_t block = first_block; block < end; ++block) {
    const uint8_t before = masks_[block].load(std::memory_order_relaxed);
    for (size_t i = 0; i < devices_.size(); ++i) {
      // Keys that are known already may be being read.
      if ((before >> i & 1) == 0) keys_[block * kMaxDevices + i] = region.keys[i];
    }
    masks_[block].store(mask, std::memory_order_release);
  }
}

}  // namespace be::memory
