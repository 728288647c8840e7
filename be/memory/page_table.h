// What is known of each page of the range: what kind of allocation begins or lies there.
//
// Written before the pointers into the pages are handed out, read by whoever holds one: no lock.
#pragma once

#include <cstddef>
#include <cstdint>

#include "be/memory/size_classes.h"
#include "be/memory/zeroed_array.h"

namespace be::memory {

struct Span;

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

static_assert(kSizeClassCount < PageTable::kPageRun);

}  // namespace be::memory
