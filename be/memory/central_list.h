// The free objects of one size class that no thread holds, kept by span.
//
//   span    16-64 KiB of pages cut into equal objects; a bit per object: set = free, here
//   objects of a span = free here + out (in thread caches or in use)
//
// take and give move whole batches, so the lock is taken once for about half a thread cache. A
// span whose last object comes home gives its pages back at once. Spans are found from a pointer
// by page number (PageTable): nothing is written into the memory itself, so a late writer can
// corrupt data but never the allocator.
//
// Any thread; one lock per class, never held while the page heap grows.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "be/base/status.h"
#include "be/memory/page_heap.h"
#include "be/memory/size_classes.h"
#include "be/memory/zeroed_array.h"

namespace be::memory {

struct Span {
  uint32_t first_page;
  uint16_t free;  // bits set
  uint16_t hint;  // no word of the bitmap before this one has a bit set
  Span* next;     // in the list of spans with free > 0
  Span* previous;
  std::array<uint64_t, kMaxSpanObjects / 64> bits;
};

// What is known of each page of the range, written before its pointers are handed out.
struct PageTable {
  // Kinds of pages: 0 to kSizeClassCount - 1 are spans of that class.
  static constexpr uint8_t kPageRun = 254;   // first page of an allocation of pages
  static constexpr uint8_t kBlockRun = 255;  // ... of whole blocks

  PageTable(uint8_t* range_base, size_t range_bytes)
      : base(range_base), kinds(range_bytes / kPageBytes), spans(range_bytes / kPageBytes) {}

  uint32_t page_of(const void* pointer) const {
    return static_cast<uint32_t>((static_cast<const uint8_t*>(pointer) - base) >> kPageShift);
  }
  uint8_t* address_of(uint32_t page) const { return base + size_t{page} * kPageBytes; }

  uint8_t* const base;
  ZeroedArray<uint8_t> kinds;
  ZeroedArray<Span*> spans;  // of pages whose kind is a class
};

class CentralList {
 public:
  void init(size_t size_class, PageHeap& heap, PageTable& table);

  // Up to `wanted` objects, at least one; sets how many. Fails when the heap cannot grow.
  Status take(void** objects, size_t wanted, size_t& count);
  void give(void* const* objects, size_t count);

 private:
  size_t take_from_spans(void** objects, size_t wanted);
  void take_from(Span& span, void** objects, size_t count);
  bool put_back(void* object, Span*& emptied);
  Status add_span();
  Span* new_span();
  void link(Span& span);
  void unlink(Span& span);

  PageHeap* heap_ = nullptr;
  PageTable* table_ = nullptr;
  size_t class_index_ = 0;
  SizeClass class_;

  std::mutex mutex_;                          // the rest
  Span* partial_ = nullptr;                   // spans with free objects
  std::vector<std::unique_ptr<Span>> spans_;  // all that were ever made: as many as at the peak
  std::vector<Span*> unused_;                 // those without pages
};

}  // namespace be::memory
