#include "be/memory/thread_cache.h"

#include <algorithm>

namespace be::memory {

ThreadCache::ThreadCache() {
  void** slots = slots_.data();
  for (size_t i = 0; i < kSizeClassCount; ++i) {
    bins_[i].limit_ = kSizeClasses[i].cached;
    bins_[i].objects_ = slots;
    slots += kSizeClasses[i].cached;
  }
}

size_t ThreadCache::Bin::push_all(std::span<void* const> objects) {
  const size_t kept = std::min<size_t>(objects.size(), room());
  std::copy_n(objects.data(), kept, objects_ + count());
  count_.set(count() + static_cast<uint32_t>(kept));
  return kept;
}

size_t ThreadCache::Bin::take_oldest(size_t most, void** objects) {
  const size_t taken = std::min<size_t>(most, count());
  std::copy_n(objects_, taken, objects);
  std::copy(objects_ + taken, objects_ + count(), objects_);
  count_.set(count() - static_cast<uint32_t>(taken));
  return taken;
}

size_t ThreadCache::FreedRuns::take_all(std::span<uint32_t> first_pages) {
  const size_t count = count_.get();
  std::copy_n(first_pages_.begin(), count, first_pages.begin());
  count_.set(0);
  pages_.set(0);
  return count;
}

}  // namespace be::memory
