#include "be/memory/pool_core.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <string_view>
#include <utility>

#include "be/base/log.h"

namespace be::memory {
namespace {

constexpr std::string_view kPoolName = "the registered pool";

}  // namespace

PoolCore::PoolCore(std::unique_ptr<BlockSource> blocks)
    : blocks_(std::move(blocks)),
      heap_(*blocks_),
      table_(blocks_->range().base(), blocks_->range().bytes()),
      caches_(central_) {
  for (size_t i = 0; i < kSizeClassCount; ++i) central_[i].init(i, heap_, table_);
}

void PoolCore::deallocate(void* pointer) {
  const size_t offset = static_cast<size_t>(static_cast<uint8_t*>(pointer) - table_.base);
  if (offset >= blocks_->range().bytes()) [[unlikely]] {
    if (pointer != nullptr) log_error("deallocate of {}, which is not of this pool", pointer);
    return;
  }
  const uint8_t kind = table_.kinds[offset >> kPageShift];
  if (kind < kSizeClassCount) [[likely]] {
    deallocate_small(pointer, kind);
  } else {
    deallocate_large(pointer, kind);
  }
}

size_t PoolCore::usable_size(const void* pointer) const {
  const uint32_t page = table_.page_of(pointer);
  const uint8_t kind = table_.kinds[page];
  if (kind < kSizeClassCount) return kSizeClasses[kind].bytes;
  return in_child() ? 0 : heap_.bytes_at(page);
}

Result<PoolCore::Allocation> PoolCore::allocate_small(size_t size_class) {
  if (in_child()) return forked_status(kPoolName);
  void* object = nullptr;
  if (!refill(size_class, object).ok()) {
    make_room();
    BE_RETURN_IF_ERROR(refill(size_class, object));
  }
  const size_t bytes = kSizeClasses[size_class].bytes;
  count_live(1, static_cast<int64_t>(bytes));
  return Allocation{object, bytes};
}

// Half a cache's worth from the central list: one for the caller, the others for later.
Status PoolCore::refill(size_t size_class, void*& object) {
  std::array<void*, kMaxCachedObjects> batch;
  const size_t wanted = waiters_.starved() ? 1 : kSizeClasses[size_class].cached / 2u;
  size_t count = 0;
  BE_RETURN_IF_ERROR(central_[size_class].take(batch.data(), wanted, count));
  object = batch[--count];
  if (count == 0) return ok_status();
  ThreadCache* cache = caches_.current();
  if (cache == nullptr || !cache->enter()) {
    central_[size_class].give(batch.data(), count);
    return ok_status();
  }
  ThreadCache::Bin& bin = cache->bin(size_class);
  const size_t kept = std::min<size_t>(count, bin.limit - bin.count);
  std::copy_n(batch.data(), kept, bin.objects + bin.count);
  bin.count += static_cast<uint32_t>(kept);
  cache->leave();
  if (kept < count) central_[size_class].give(batch.data() + kept, count - kept);
  return ok_status();
}

Result<PoolCore::Allocation> PoolCore::allocate_large(size_t size) {
  if (size == 0) return error(Code::kInvalidArgument, "an allocation of 0 bytes");
  if (in_child()) return forked_status(kPoolName);
  if (size > blocks_->cap_bytes()) {
    return error(Code::kInvalidArgument, "{} bytes can never fit memory.cap_bytes = {}", size,
                 blocks_->cap_bytes());
  }
  uint8_t kind = 0;
  auto page = take_large(size, kind);
  if (!page.ok()) {
    make_room();
    page = take_large(size, kind);
  }
  BE_ASSIGN_OR_RETURN(const uint32_t first, std::move(page));
  table_.kinds[first] = kind;
  const size_t bytes = heap_.bytes_at(first);
  count_live(1, static_cast<int64_t>(bytes));
  return Allocation{table_.address_of(first), bytes};
}

Result<uint32_t> PoolCore::take_large(size_t size, uint8_t& kind) {
  const size_t block_bytes = blocks_->block_bytes();
  if (size <= block_bytes) {
    kind = PageTable::kPageRun;
    return heap_.allocate_pages(static_cast<uint32_t>((size + kPageBytes - 1) / kPageBytes));
  }
  kind = PageTable::kBlockRun;
  return heap_.allocate_blocks(static_cast<uint32_t>((size + block_bytes - 1) / block_bytes));
}

void PoolCore::deallocate_small(void* object, size_t size_class) {
  const int64_t bytes = kSizeClasses[size_class].bytes;
  ThreadCache* cache = caches_.current();
  if (cache == nullptr || !cache->enter()) [[unlikely]] {
    if (in_child()) return;
    central_[size_class].give(&object, 1);
    caches_.ownerless().add(-1, -bytes);
    if (waiters_.starved()) waiters_.fire();
    return;
  }
  if (waiters_.starved()) [[unlikely]] {
    cache->leave();
    central_[size_class].give(&object, 1);
    cache->live().add_by_owner(-1, -bytes);
    waiters_.fire();
    return;
  }
  ThreadCache::Bin& bin = cache->bin(size_class);
  std::array<void*, kMaxCachedObjects> batch;
  size_t surplus = 0;
  if (bin.count == bin.limit) [[unlikely]] {
    // The older half goes: the newer is warm.
    surplus = bin.limit / 2;
    std::copy_n(bin.objects, surplus, batch.data());
    std::copy(bin.objects + surplus, bin.objects + bin.count, bin.objects);
    bin.count -= static_cast<uint32_t>(surplus);
  }
  bin.objects[bin.count++] = object;
  cache->leave();
  cache->live().add_by_owner(-1, -bytes);
  if (surplus > 0) {
    central_[size_class].give(batch.data(), surplus);
    // A failing allocation may have drained the caches while the batch was in our hands.
    if (waiters_.starved()) waiters_.fire();
  }
}

void PoolCore::deallocate_large(void* pointer, uint8_t kind) {
  if (in_child()) return;
  const uint32_t page = table_.page_of(pointer);
  assert(pointer == table_.address_of(page));
  const auto bytes = static_cast<int64_t>(heap_.bytes_at(page));
  if (kind == PageTable::kPageRun) {
    heap_.free_pages(page);
  } else {
    heap_.free_blocks(page);
  }
  count_live(-1, -bytes);
  if (waiters_.starved()) waiters_.fire();
}

Status PoolCore::adopt(void* memory, size_t size) {
  if (in_child()) return forked_status(kPoolName);
  if (!blocks_->charge(size).ok()) {
    make_room();
    heap_.release_kept();
    BE_RETURN_IF_ERROR(blocks_->charge(size));
  }
  if (Status status = blocks_->regions().adopt(memory, size); !status.ok()) {
    blocks_->refund(size);
    return status;
  }
  count_live(1, static_cast<int64_t>(size));
  return ok_status();
}

void PoolCore::release_adopted(void* memory, size_t size) {
  if (in_child()) return;
  if (const Status status = blocks_->regions().forget_adopted(memory); !status.ok()) {
    log_error("adopted memory stays registered: {}", status.to_string());
  }
  blocks_->refund(size);
  count_live(-1, -static_cast<int64_t>(size));
  if (waiters_.starved()) waiters_.fire();
}

PoolStats PoolCore::stats() const {
  if (in_child()) return {.cap_bytes = blocks_->cap_bytes()};  // nothing of it is the child's
  const RegionTable& regions = blocks_->regions();
  // Sums of counters that move meanwhile can be off for a moment, even below zero.
  return {.registered_bytes = blocks_->registered_bytes(),
          .live_bytes = static_cast<size_t>(std::max<int64_t>(0, caches_.live_bytes())),
          .peak_registered_bytes = blocks_->peak_registered_bytes(),
          .cap_bytes = blocks_->cap_bytes(),
          .allocations = static_cast<uint64_t>(std::max<int64_t>(0, caches_.live_allocations())),
          .registrations = regions.registrations(),
          .deregistrations = regions.deregistrations()};
}

void PoolCore::count_live(int64_t count, int64_t bytes) {
  if (ThreadCache* cache = caches_.current()) {
    cache->live().add_by_owner(count, bytes);
  } else {
    caches_.ownerless().add(count, bytes);
  }
}

void PoolCore::make_room() {
  waiters_.starve();
  caches_.drain();
}

}  // namespace be::memory
