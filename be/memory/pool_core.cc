#include "be/memory/pool_core.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
#include <string_view>
#include <utility>

#include "be/base/log.h"

namespace be::memory {
namespace {

constexpr std::string_view kPoolName = "the registered pool";

constexpr size_t kMaxQuarantineBytes = size_t{64} << 20;

// What RegisteredPool::allocate promises.
constexpr size_t alignment_of(size_t size) { return size < 64 ? 16 : 64; }

}  // namespace

PoolCore::PoolCore(std::unique_ptr<BlockSource> blocks, const PoolOptions& options)
    : blocks_(std::move(blocks)),
      range_bytes_(blocks_->range().bytes()),
      hot_sizes_(options.guard == GuardMode::kOff ? kMaxSmallBytes : 0),
      hot_range_bytes_(options.guard == GuardMode::kOff ? range_bytes_ : 0),
      heap_(*blocks_, options.kept_bytes, [this] { settle(); }),
      table_(blocks_->range().base(), blocks_->range().bytes()),
      caches_(central_, heap_) {
  for (size_t i = 0; i < kSizeClassCount; ++i) central_[i].init(i, heap_, table_);
  if (options.guard != GuardMode::kOff) {
    guard_ = std::make_unique<Guard>(
        guard_source_, std::min(kMaxQuarantineBytes, range_bytes_ / 8),
        options.guard == GuardMode::kAbort ? Guard::abort_on_fault : Guard::OnFault());
  }
}

size_t PoolCore::usable_size(const void* pointer) const {
  if (guard_ != nullptr) return in_child() ? 0 : guard_->usable_size(pointer);
  const uint32_t page = table_.page_of(pointer);
  const uint8_t kind = table_.kinds[page];
  if (kind >= kSizeClassCount && in_child()) return 0;
  return usable_bytes(page, kind);
}

// `page`: the first of a run, or any of a span.
size_t PoolCore::usable_bytes(uint32_t page, uint8_t kind) const {
  if (kind < kSizeClassCount) return kSizeClasses[kind].bytes;
  return kind == PageTable::kPageRun ? size_t{heap_.run_pages(page)} * kPageBytes
                                     : heap_.run_blocks(page) * heap_.block_bytes();
}

Result<PoolCore::Allocation> PoolCore::allocate(size_t size) { return allocate_aligned(size, 1); }

Result<PoolCore::Allocation> PoolCore::allocate_aligned(size_t size, size_t alignment) {
  if (size == 0) return error(Code::kInvalidArgument, "an allocation of 0 bytes");
  if (!std::has_single_bit(alignment) || alignment > heap_.block_bytes()) {
    return error(
        Code::kInvalidArgument,
        "an alignment of {} bytes: it must be a power of two up to memory.block_size_bytes "
        "= {}",
        alignment, heap_.block_bytes());
  }
  if (in_child()) return forked_status(kPoolName);
  if (guard_ == nullptr) return allocate_unguarded(size, alignment);
  BE_ASSIGN_OR_RETURN(void* pointer,
                      guard_->allocate(size, std::max(alignment, alignment_of(size))));
  return Allocation{pointer, size};
}

Result<PoolCore::Allocation> PoolCore::allocate_unguarded(size_t size, size_t alignment) {
  if (size <= kMaxSmallBytes && alignment <= kPageBytes) {
    // Spans begin at a page, so objects whose size is a multiple of the alignment have it.
    for (size_t i = size_class_of(size); i < kSizeClassCount; ++i) {
      if (kSizeClasses[i].bytes % alignment == 0) return allocate_small(i);
    }
  }
  return allocate_large(size, std::max(alignment, kPageBytes));
}

Result<PoolCore::Allocation> PoolCore::allocate_small(size_t size_class) {
  caches_.current();  // from now on known
  if (void* object = pop_cached(size_class)) {
    return Allocation{object, kSizeClasses[size_class].bytes};
  }
  void* object = nullptr;
  if (!refill(size_class, object).ok()) {
    make_room();
    BE_RETURN_IF_ERROR(refill(size_class, object));
  }
  unpoison(object, kSizeClasses[size_class].bytes);
  return Allocation{object, kSizeClasses[size_class].bytes};
}

// Half a cache's worth from the central list: one for the caller, the others for later.
Status PoolCore::refill(size_t size_class, void*& object) {
  std::array<void*, kMaxCachedObjects> batch;
  const size_t wanted = waiters_.starved() ? 1 : kSizeClasses[size_class].cached / 2u;
  size_t count = 0;
  BE_RETURN_IF_ERROR(central_[size_class].take(batch.data(), wanted, count));
  object = batch[--count];
  size_t kept = 0;
  ThreadCache* cache = count > 0 ? caches_.current() : nullptr;
  if (cache != nullptr && cache->enter()) {
    kept = cache->bin(size_class).push_all({batch.data(), count});
    cache->leave();
  }
  if (kept < count) {
    central_[size_class].give({batch.data() + kept, count - kept});
    tell_the_starved(size_class);
  }
  return ok_status();
}

Result<PoolCore::Allocation> PoolCore::allocate_large(size_t size, size_t alignment) {
  if (size > blocks_->cap_bytes()) {
    return error(Code::kInvalidArgument, "{} bytes can never fit memory.cap_bytes = {}", size,
                 blocks_->cap_bytes());
  }
  uint8_t kind = 0;
  auto page = take_large(size, alignment, kind);
  if (!page.ok()) {
    make_room();
    page = take_large(size, alignment, kind);
  }
  BE_ASSIGN_OR_RETURN(const uint32_t first, std::move(page));
  table_.kinds[first] = kind;
  const size_t bytes = usable_bytes(first, kind);
  void* pointer = table_.address_of(first);
  unpoison(pointer, bytes);
  return Allocation{pointer, bytes};
}

Result<uint32_t> PoolCore::take_large(size_t size, size_t alignment, uint8_t& kind) {
  const size_t block_bytes = heap_.block_bytes();
  if (size <= block_bytes) {
    kind = PageTable::kPageRun;
    return take_pages(static_cast<uint32_t>((size + kPageBytes - 1) / kPageBytes),
                      static_cast<uint32_t>(alignment / kPageBytes));
  }
  kind = PageTable::kBlockRun;
  return heap_.allocate_blocks(static_cast<uint32_t>((size + block_bytes - 1) / block_bytes));
}

// What the thread has freed goes back under the same lock.
Result<uint32_t> PoolCore::take_pages(uint32_t pages, uint32_t alignment) {
  std::array<uint32_t, ThreadCache::FreedRuns::kRuns> freed;
  size_t count = 0;
  ThreadCache* cache = caches_.current();
  if (cache != nullptr && cache->freed().count() > 0 && cache->enter()) {
    count = cache->freed().take_all(freed);
    cache->leave();
  }
  return heap_.allocate_pages(pages, alignment, {freed.data(), count});
}

void PoolCore::deallocate_slow(void* pointer) {
  if (pointer == nullptr || in_child()) return;
  if (guard_ != nullptr) {
    guard_->deallocate(pointer);
    if (waiters_.starved()) guard_->release_quarantine();  // which tells them
    return;
  }
  const size_t offset = static_cast<size_t>(static_cast<uint8_t*>(pointer) - table_.base);
  if (offset >= range_bytes_) {
    log_error("deallocate of {}, which is not of this pool", pointer);
  } else {
    deallocate_unguarded(pointer);
  }
}

void PoolCore::deallocate_unguarded(void* pointer) {
  const uint8_t kind = table_.kinds[table_.page_of(pointer)];
  if (kind < kSizeClassCount) {
    poison(pointer, kSizeClasses[kind].bytes);
    deallocate_small(pointer, kind);
  } else {
    deallocate_large(pointer, kind);
  }
  tell_the_starved(kind);
}

// After something was given back: a failing allocation may have emptied caches and stacks while it
// was in our hands. `kind`: of its pages.
void PoolCore::tell_the_starved(uint8_t kind) {
  if (!waiters_.starved()) return;
  if (kind < kSizeClassCount) central_[kind].settle();
  waiters_.fire();
}

// Past the cache, or into it after half of what it holds has gone.
void PoolCore::deallocate_small(void* object, size_t size_class) {
  std::array<void*, kMaxCachedObjects> batch;
  size_t count = 0;
  bool cached = false;
  ThreadCache* cache = waiters_.starved() ? nullptr : caches_.current();
  if (cache != nullptr && cache->enter()) {
    ThreadCache::Bin& bin = cache->bin(size_class);
    if (bin.room() == 0) count = bin.take_oldest(bin.count() / 2, batch.data());
    cached = bin.push(object);
    cache->leave();
  }
  if (!cached) batch[count++] = object;
  if (count > 0) central_[size_class].give({batch.data(), count});
}

void PoolCore::deallocate_large(void* pointer, uint8_t kind) {
  const uint32_t page = table_.page_of(pointer);
  assert(pointer == table_.address_of(page));
  poison(pointer, usable_bytes(page, kind));
  if (kind == PageTable::kPageRun) {
    deallocate_pages(page);
  } else {
    heap_.free_blocks(page);
  }
}

void PoolCore::deallocate_pages(uint32_t first_page) {
  std::array<uint32_t, ThreadCache::FreedRuns::kRuns + 1> freed;
  size_t count = 0;
  ThreadCache* cache = waiters_.starved() ? nullptr : caches_.current();
  if (cache != nullptr && cache->enter()) {
    const bool kept = cache->freed().push(first_page, heap_.run_pages(first_page));
    if (!kept) count = cache->freed().take_all(freed);
    cache->leave();
    if (kept) return;
  }
  freed[count++] = first_page;
  heap_.free_pages({freed.data(), count});
}

Status PoolCore::adopt(void* memory, size_t size) {
  if (in_child()) return forked_status(kPoolName);
  if (!blocks_->charge(size).ok()) {
    if (guard_ != nullptr) guard_->release_quarantine();
    make_room();
    heap_.release_kept();
    BE_RETURN_IF_ERROR(blocks_->charge(size));
  }
  if (Status status = blocks_->regions().adopt(memory, size); !status.ok()) {
    blocks_->refund(size);
    return status;
  }
  adopted_bytes_.fetch_add(size, std::memory_order_relaxed);
  adopted_.fetch_add(1, std::memory_order_relaxed);
  return ok_status();
}

bool PoolCore::release_adopted(void* memory, size_t size) {
  if (in_child()) return true;
  adopted_bytes_.fetch_sub(size, std::memory_order_relaxed);
  adopted_.fetch_sub(1, std::memory_order_relaxed);
  if (const Status status = blocks_->regions().forget_adopted(memory); !status.ok()) {
    log_error("{} bytes of adopted memory at {} are lost: {}", size, memory, status.to_string());
    return false;
  }
  blocks_->refund(size);
  if (waiters_.starved()) waiters_.fire();
  return true;
}

Result<std::span<uint8_t>> PoolCore::GuardSource::allocate(size_t bytes, size_t alignment) {
  BE_ASSIGN_OR_RETURN(const Allocation allocation, core_.allocate_unguarded(bytes, alignment));
  return std::span(static_cast<uint8_t*>(allocation.pointer), allocation.bytes);
}

void PoolCore::GuardSource::deallocate(uint8_t* memory) { core_.deallocate_unguarded(memory); }

PoolStats PoolCore::stats() const {
  PoolStats stats{.cap_bytes = blocks_->cap_bytes()};
  if (in_child()) return stats;  // nothing of it is the child's
  const ThreadCaches::Freed freed = caches_.freed();
  const PageHeap::Counts heap = heap_.counts();
  // In signed numbers: the parts are of slightly different moments.
  auto bytes = static_cast<int64_t>(heap.bytes) - static_cast<int64_t>(freed.bytes);
  auto runs = static_cast<int64_t>(heap.runs) - static_cast<int64_t>(freed.runs);
  for (size_t i = 0; i < kSizeClassCount; ++i) {
    const CentralList::Counts counts = central_[i].counts();
    const auto live =
        static_cast<int64_t>(counts.out) - static_cast<int64_t>(caches_.cached_objects(i));
    runs += live - static_cast<int64_t>(counts.spans);
    bytes += live * kSizeClasses[i].bytes -
             static_cast<int64_t>(counts.spans * kSizeClasses[i].span_pages * kPageBytes);
  }
  const RegionTable& regions = blocks_->regions();
  stats.registered_bytes = blocks_->registered_bytes();
  if (guard_ != nullptr) {
    const Guard::Stats guarded = guard_->stats();
    bytes = static_cast<int64_t>(guarded.live_bytes);
    runs = static_cast<int64_t>(guarded.live_allocations);
    stats.guard_faults = guarded.faults;
  }
  stats.live_bytes = static_cast<size_t>(std::max<int64_t>(0, bytes)) +
                     adopted_bytes_.load(std::memory_order_relaxed);
  stats.cached_bytes = stats.registered_bytes - std::min(stats.registered_bytes, stats.live_bytes);
  stats.peak_registered_bytes = blocks_->peak_registered_bytes();
  stats.allocations =
      static_cast<uint64_t>(std::max<int64_t>(0, runs)) + adopted_.load(std::memory_order_relaxed);
  stats.registrations = regions.registrations();
  stats.deregistrations = regions.deregistrations();
  return stats;
}

std::vector<SizeClassStats> PoolCore::size_class_stats() const {
  std::vector<SizeClassStats> stats(kSizeClassCount);
  for (size_t i = 0; i < kSizeClassCount; ++i) {
    stats[i].object_bytes = kSizeClasses[i].bytes;
    if (in_child()) continue;
    const CentralList::Counts counts = central_[i].counts();
    const size_t cached = caches_.cached_objects(i);
    stats[i].live_objects = counts.out - std::min<uint64_t>(counts.out, cached);
    stats[i].cached_objects = cached;
    stats[i].span_bytes = counts.spans * kSizeClasses[i].span_pages * kPageBytes;
  }
  return stats;
}

void PoolCore::release_unused() {
  if (guard_ != nullptr) guard_->check_all();
  settle();
  heap_.release_unused();
}

void PoolCore::settle() {
  caches_.drain();
  for (CentralList& list : central_) list.settle();
}

void PoolCore::make_room() {
  waiters_.starve();
  settle();
}

}  // namespace be::memory
