#include "be/memory/registered_pool.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <limits>
#include <utility>

#include "be/base/fork.h"
#include "be/base/log.h"
#include "be/memory/pool_core.h"
#include "be/memory/shared_memory.h"
#include "be/memory/system_calls.h"

namespace be {
namespace {

constexpr size_t kMaxBufferBytes = std::numeric_limits<uint32_t>::max();
constexpr size_t kListed = 16;  // live allocations of a pool that is destroyed, in guard mode

// Cores whose pool was destroyed too early: Buffers still point to them. A list without a lock,
// which a forked child may need too.
void keep_for_ever(std::unique_ptr<memory::PoolCore> core) {
  struct Kept {
    std::unique_ptr<memory::PoolCore> core;
    Kept* next;
  };
  static constinit std::atomic<Kept*> newest{nullptr};
  auto* kept = new Kept{std::move(core), newest.load()};
  while (!newest.compare_exchange_weak(kept->next, kept)) {
  }
}

Status check_buffer_size(size_t size) {
  if (size <= kMaxBufferBytes) return ok_status();
  return error(Code::kInvalidArgument, "a Buffer of {} bytes is larger than {}", size,
               kMaxBufferBytes);
}

}  // namespace

Result<std::unique_ptr<RegisteredPool>> RegisteredPool::create(const PoolOptions& options) {
  return create(options, memory::kernel_system_calls());
}

Result<std::unique_ptr<RegisteredPool>> RegisteredPool::create(const PoolOptions& options,
                                                               memory::SystemCalls& calls) {
  BE_ASSIGN_OR_RETURN(auto blocks, memory::BlockSource::create(options, calls));
  return std::unique_ptr<RegisteredPool>(
      new RegisteredPool(std::make_unique<memory::PoolCore>(std::move(blocks), options)));
}

RegisteredPool::RegisteredPool(std::unique_ptr<memory::PoolCore> core)
    : core_(std::move(core)),
      base_(reinterpret_cast<uintptr_t>(core_->blocks().range().base())),
      range_bytes_(core_->blocks().range().bytes()),
      block_shift_(std::countr_zero(core_->blocks().block_bytes())),
      device_masks_(core_->blocks().regions().masks()),
      block_keys_(core_->blocks().regions().keys()) {}

RegisteredPool::~RegisteredPool() {
  if (core_->in_child()) {  // inherited Buffers read it
    keep_for_ever(std::move(core_));
    return;
  }
  core_->blocks().regions().deregister_all();
  const PoolStats left = core_->stats();
  if (left.allocations == 0) return;
  log_error(
      "a registered pool was destroyed with {} live allocations of {} bytes; its memory is kept",
      left.allocations, left.live_bytes);
  if (core_->guard() != nullptr) core_->guard()->log_live(kListed);
  keep_for_ever(std::move(core_));
}

Result<size_t> RegisteredPool::add_device(Device* device) {
  if (core_->in_child()) return forked_status("the registered pool");
  return core_->blocks().regions().add_device(device);
}

Result<void*> RegisteredPool::allocate(size_t size) {
  if (void* cached = core_->allocate_cached(size)) [[likely]]
    return cached;
  return allocate_uncached(size);
}

// Apart, so that the path above needs no stack frame.
[[gnu::noinline]] Result<void*> RegisteredPool::allocate_uncached(size_t size) {
  BE_ASSIGN_OR_RETURN(const auto allocation, core_->allocate(size));
  return allocation.pointer;
}

Result<void*> RegisteredPool::allocate_aligned(size_t size, size_t alignment) {
  BE_ASSIGN_OR_RETURN(const auto allocation, core_->allocate_aligned(size, alignment));
  return allocation.pointer;
}

void RegisteredPool::deallocate(void* pointer) { core_->deallocate(pointer); }

size_t RegisteredPool::usable_size(const void* pointer) const {
  return core_->usable_size(pointer);
}

const RegionKeys* RegisteredPool::adopted_region(const void* pointer, size_t index) const {
  return core_->in_child() ? nullptr : core_->blocks().regions().adopted(pointer, index);
}

Result<Buffer> RegisteredPool::allocate_buffer(size_t size) {
  BE_RETURN_IF_ERROR(check_buffer_size(size));
  BE_ASSIGN_OR_RETURN(const auto allocation, core_->allocate(size));
  return Buffer(static_cast<uint8_t*>(allocation.pointer), size,
                std::min(allocation.bytes, kMaxBufferBytes), core_.get(), false);
}

Result<Buffer> RegisteredPool::adopt(void* memory, size_t size, std::function<void()> release) {
  if (memory == nullptr || size == 0) {
    return error(Code::kInvalidArgument, "adopting {} bytes at {}", size, memory);
  }
  BE_RETURN_IF_ERROR(check_buffer_size(size));
  BE_RETURN_IF_ERROR(core_->adopt(memory, size));
  auto* shared = new Buffer::Shared;
  shared->core = core_.get();
  shared->memory = static_cast<uint8_t*>(memory);
  shared->adopted_bytes = size;
  shared->release = std::move(release);
  return Buffer(shared->memory, size, size, shared, true);
}

// Memory of the pool, not only adopted by it.
bool RegisteredPool::in_one_region(const void* memory, size_t size) const {
  const size_t offset = reinterpret_cast<uintptr_t>(memory) - base_;
  if (offset >= range_bytes_ || size > range_bytes_ - offset) return false;
  const auto* last = static_cast<const uint8_t*>(memory) + size - 1;
  for (size_t i = 0; i < kMaxDevices; ++i) {
    const RegionKeys* first_keys = region(memory, i);
    const RegionKeys* last_keys = region(last, i);
    if ((first_keys == nullptr) != (last_keys == nullptr)) return false;
    if (first_keys != nullptr && first_keys->lkey != last_keys->lkey) return false;
  }
  return true;
}

Result<Buffer> RegisteredPool::buffer_from(void* memory, size_t size,
                                           std::function<void()> release) {
  BE_RETURN_IF_ERROR(check_buffer_size(size));
  if (core_->in_child()) return forked_status("the registered pool");
  const size_t usable = release || !in_one_region(memory, 1) ? size : usable_size(memory);
  if (size == 0 || size > usable || !in_one_region(memory, size)) {
    return error(Code::kInvalidArgument, "{} bytes at {} are no part of one allocation of the pool",
                 size, memory);
  }
  auto* data = static_cast<uint8_t*>(memory);
  if (!release) return Buffer(data, size, std::min(usable, kMaxBufferBytes), core_.get(), false);
  auto* shared = new Buffer::Shared;
  shared->core = core_.get();
  shared->memory = data;
  shared->release = std::move(release);
  return Buffer(data, size, size, shared, true);
}

uint64_t RegisteredPool::on_free(std::function<void()> callback) {
  return core_->in_child() ? 0 : core_->waiters().add(std::move(callback));
}

void RegisteredPool::cancel_on_free(uint64_t id) {
  if (!core_->in_child()) core_->waiters().cancel(id);
}

bool RegisteredPool::starved() const { return core_->waiters().starved(); }

void RegisteredPool::release_unused() {
  if (!core_->in_child()) core_->release_unused();
}

bool RegisteredPool::has_surplus() const { return !core_->in_child() && core_->has_surplus(); }

PoolStats RegisteredPool::stats() const { return core_->stats(); }

std::vector<SizeClassStats> RegisteredPool::size_class_stats() const {
  return core_->size_class_stats();
}

}  // namespace be
