#include "be/memory/central_list.h"

#include <algorithm>
#include <bit>
#include <cassert>

namespace be::memory {

void CentralList::init(size_t size_class, PageHeap& heap, PageTable& table) {
  heap_ = &heap;
  table_ = &table;
  class_index_ = size_class;
  class_ = kSizeClasses[size_class];
}

Status CentralList::take(void** objects, size_t wanted, size_t& count) {
  for (;;) {
    {
      std::lock_guard lock(mutex_);
      count = take_from_spans(objects, wanted);
    }
    if (count > 0) return ok_status();
    BE_RETURN_IF_ERROR(add_span());
  }
}

void CentralList::give(void* const* objects, size_t count) {
  std::array<uint32_t, kMaxCachedObjects> emptied;  // first pages of spans
  size_t emptied_count = 0;
  {
    std::lock_guard lock(mutex_);
    for (size_t i = 0; i < count; ++i) {
      Span* span = nullptr;
      if (!put_back(objects[i], span)) continue;
      emptied[emptied_count++] = span->first_page;
      unused_.push_back(span);
    }
  }
  for (size_t i = 0; i < emptied_count; ++i) heap_->free_pages(emptied[i]);
}

size_t CentralList::take_from_spans(void** objects, size_t wanted) {
  size_t count = 0;
  while (count < wanted && partial_ != nullptr) {
    Span& span = *partial_;
    const size_t part = std::min<size_t>(wanted - count, span.free);
    take_from(span, objects + count, part);
    count += part;
    if (span.free == 0) unlink(span);
  }
  return count;
}

void CentralList::take_from(Span& span, void** objects, size_t count) {
  uint8_t* base = table_->address_of(span.first_page);
  size_t word = span.hint;
  for (size_t i = 0; i < count; ++i) {
    while (span.bits[word] == 0) ++word;
    const auto bit = static_cast<size_t>(std::countr_zero(span.bits[word]));
    span.bits[word] &= span.bits[word] - 1;
    objects[i] = base + (word * 64 + bit) * class_.bytes;
  }
  span.hint = static_cast<uint16_t>(word);
  span.free = static_cast<uint16_t>(span.free - count);
}

// True if `span`, the object's, has all its objects again and was taken out of the list.
bool CentralList::put_back(void* object, Span*& span) {
  span = table_->spans[table_->page_of(object)];
  const auto offset =
      static_cast<uint32_t>(static_cast<uint8_t*>(object) - table_->address_of(span->first_page));
  const uint32_t index = offset / class_.bytes;
  const uint64_t bit = uint64_t{1} << (index % 64);
  assert(offset % class_.bytes == 0 && (span->bits[index / 64] & bit) == 0);
  span->bits[index / 64] |= bit;
  span->hint = std::min(span->hint, static_cast<uint16_t>(index / 64));
  if (span->free++ == 0) link(*span);
  if (span->free < class_.span_objects) return false;
  unlink(*span);
  return true;
}

Status CentralList::add_span() {
  BE_ASSIGN_OR_RETURN(const uint32_t first, heap_->allocate_pages(class_.span_pages));
  std::lock_guard lock(mutex_);
  Span* span = new_span();
  *span = {.first_page = first,
           .free = class_.span_objects,
           .hint = 0,
           .next = nullptr,
           .previous = nullptr,
           .bits = {}};
  for (size_t i = 0; i < class_.span_objects; ++i) span->bits[i / 64] |= uint64_t{1} << (i % 64);
  for (uint32_t page = first; page < first + class_.span_pages; ++page) {
    table_->kinds[page] = static_cast<uint8_t>(class_index_);
    table_->spans[page] = span;
  }
  link(*span);
  return ok_status();
}

Span* CentralList::new_span() {
  if (unused_.empty()) {
    // Room for all in unused_, so that give() never allocates.
    spans_.push_back(std::make_unique<Span>());
    if (unused_.capacity() < spans_.size()) unused_.reserve(2 * spans_.size());
    return spans_.back().get();
  }
  Span* span = unused_.back();
  unused_.pop_back();
  return span;
}

void CentralList::link(Span& span) {
  span.previous = nullptr;
  span.next = partial_;
  if (partial_ != nullptr) partial_->previous = &span;
  partial_ = &span;
}

void CentralList::unlink(Span& span) {
  if (span.previous != nullptr) span.previous->next = span.next;
  if (span.next != nullptr) span.next->previous = span.previous;
  if (partial_ == &span) partial_ = span.next;
}

}  // namespace be::memory
