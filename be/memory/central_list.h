// The free objects of one size class that no thread holds: those that came last on a stack, the
// others by span.
//
//   recent  up to about 1 MiB of objects, newest on top: what comes and goes costs a copy of
//           pointers, and is still warm when it is taken again
//   span    4 to 16 pages cut into equal objects; a bit per object: set = free, not recent
//   objects of a span = free + recent + out
//   out               = in threads' caches + in use
//
// take and give move whole batches, so the lock is taken once for about half a thread cache.
// A span whose bits are all set gives its pages back at once. Objects are taken from the fullest
// spans, so that the emptier ones become whole. The stack is sorted into spans (settle) before the
// heap grows, so it costs speed then, but never memory.
// Spans are found from a pointer by page number (PageTable): nothing is written into the memory
// itself, so a late writer can corrupt data but never the allocator.
//
// Any thread; one lock per class, never held while the page heap grows.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "be/base/status.h"
#include "be/memory/page_heap.h"
#include "be/memory/page_table.h"
#include "be/memory/size_classes.h"
#include "be/memory/spin_lock.h"

namespace be::memory {

struct Span {
  uint32_t first_page;
  uint16_t free;  // bits set
  uint16_t hint;  // no word of the bitmap before this one has a bit set
  Span* next;     // in the list of its fullness, if 0 < free < all
  Span* previous;
  std::array<uint64_t, kMaxSpanObjects / 64> bits;
};

class alignas(64) CentralList {
 public:
  struct Counts {
    uint64_t out = 0;    // objects
    uint64_t spans = 0;  // that own pages
  };

  void init(size_t size_class, PageHeap& heap, PageTable& table);

  // Up to `wanted` objects, at least one; sets how many. Fails when the heap cannot grow.
  Status take(void** objects, size_t wanted, size_t& count);
  void give(std::span<void* const> objects);
  void settle();

  Counts counts() const;

 private:
  static constexpr size_t kFullnesses = 4;
  static constexpr size_t kRecentBytes = size_t{1} << 20;
  static constexpr size_t kMaxRecent = 2048;
  static constexpr size_t kSettled = 64;  // objects at a time

  struct Emptied {  // spans that settling has made whole
    size_t count = 0;
    std::array<uint32_t, kSettled> first_pages;
  };

  size_t take_recent(void** objects, size_t wanted);
  size_t take_from_new_span(uint32_t first_page, void** objects, size_t wanted);
  size_t take_from_spans(void** objects, size_t wanted);
  void take_from(Span& span, void** objects, size_t count);
  void settle_oldest(Emptied& emptied);
  void give_pages_back(const Emptied& emptied);
  bool put_back(void* object, Span*& emptied);
  Span* new_span();
  size_t fullness(size_t free) const { return free * kFullnesses / (class_.span_objects + 1u); }
  void link(Span& span);
  void unlink(Span& span, size_t old_free);

  PageHeap* heap_ = nullptr;
  PageTable* table_ = nullptr;
  size_t class_index_ = 0;
  SizeClass class_;
  size_t recent_limit_ = 0;
  uint64_t inverse_ = 0;  // offset * inverse_ >> 32 = offset / class_.bytes

  mutable SpinLock lock_;                     // the rest
  std::vector<void*> recent_;                 // newest last, at most its first capacity
  std::array<Span*, kFullnesses> partial_{};  // spans with free objects; the fullest first
  Counts counts_;
  std::vector<std::unique_ptr<Span>> spans_;  // all that were ever made: as many as at the peak
  std::vector<Span*> unused_;                 // those without pages
};

}  // namespace be::memory
