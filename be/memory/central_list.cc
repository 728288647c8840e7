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
  // Exact for offsets below 2^16, the longest span: the error offset * (inverse - 2^32 / bytes) is
  // below 2^16, less than the 2^32 / bytes that would carry over.
  recent_limit_ = std::clamp<size_t>(kRecentBytes / class_.bytes, kMaxCachedObjects, kMaxRecent);
  recent_.reserve(recent_limit_);
  inverse_ = ((uint64_t{1} << 32) + class_.bytes - 1) / class_.bytes;
}

Status CentralList::take(void** objects, size_t wanted, size_t& count) {
  {
    std::lock_guard lock(lock_);
    count = take_recent(objects, wanted);
    if (count == 0) count = take_from_spans(objects, wanted);
    counts_.out += count;
  }
  if (count > 0) return ok_status();
  BE_ASSIGN_OR_RETURN(const uint32_t first_page, heap_->allocate_pages(class_.span_pages));
  std::lock_guard lock(lock_);
  count = take_from_new_span(first_page, objects, wanted);
  counts_.out += count;
  ++counts_.spans;
  return ok_status();
}

void CentralList::give(std::span<void* const> objects) {
  Emptied emptied;
  {
    std::lock_guard lock(lock_);
    if (recent_.size() + objects.size() > recent_limit_) settle_oldest(emptied);
    recent_.insert(recent_.end(), objects.begin(), objects.end());
    counts_.out -= objects.size();
  }
  give_pages_back(emptied);
}

void CentralList::settle() {
  for (bool done = false; !done;) {
    Emptied emptied;
    {
      std::lock_guard lock(lock_);
      settle_oldest(emptied);
      done = recent_.empty();
    }
    give_pages_back(emptied);
  }
}

void CentralList::settle_oldest(Emptied& emptied) {
  const size_t count = std::min(kSettled, recent_.size());
  for (size_t i = 0; i < count; ++i) {
    Span* span = nullptr;
    if (!put_back(recent_[i], span)) continue;
    emptied.first_pages[emptied.count++] = span->first_page;
    unused_.push_back(span);
  }
  recent_.erase(recent_.begin(), recent_.begin() + static_cast<ptrdiff_t>(count));
  counts_.spans -= emptied.count;
}

void CentralList::give_pages_back(const Emptied& emptied) {
  if (emptied.count > 0) heap_->free_pages({emptied.first_pages.data(), emptied.count});
}

CentralList::Counts CentralList::counts() const {
  std::lock_guard lock(lock_);
  return counts_;
}

size_t CentralList::take_recent(void** objects, size_t wanted) {
  const size_t count = std::min(wanted, recent_.size());
  std::copy_n(recent_.end() - static_cast<ptrdiff_t>(count), count, objects);
  recent_.resize(recent_.size() - count);
  return count;
}

size_t CentralList::take_from_spans(void** objects, size_t wanted) {
  size_t count = 0;
  for (Span*& fullest : partial_) {
    while (count < wanted && fullest != nullptr) {
      Span& span = *fullest;
      const size_t part = std::min<size_t>(wanted - count, span.free);
      const size_t old_free = span.free;
      take_from(span, objects + count, part);
      count += part;
      if (span.free == 0 || fullness(span.free) != fullness(old_free)) {
        unlink(span, old_free);
        if (span.free > 0) link(span);
      }
    }
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
  const auto index = static_cast<uint32_t>(offset * inverse_ >> 32);
  const uint64_t bit = uint64_t{1} << (index % 64);
  assert(offset == index * class_.bytes && (span->bits[index / 64] & bit) == 0);
  span->bits[index / 64] |= bit;
  span->hint = std::min(span->hint, static_cast<uint16_t>(index / 64));
  const size_t old_free = span->free++;
  const bool whole = span->free == class_.span_objects;
  if (old_free == 0 || whole || fullness(span->free) != fullness(old_free)) {
    if (old_free > 0) unlink(*span, old_free);
    if (!whole) link(*span);
  }
  return whole;
}

// Something is taken at once: a span that is whole is in no list.
size_t CentralList::take_from_new_span(uint32_t first_page, void** objects, size_t wanted) {
  Span* span = new_span();
  *span = {.first_page = first_page,
           .free = class_.span_objects,
           .hint = 0,
           .next = nullptr,
           .previous = nullptr,
           .bits = {}};
  for (size_t i = 0; i < class_.span_objects; ++i) span->bits[i / 64] |= uint64_t{1} << (i % 64);
  for (uint32_t page = first_page; page < first_page + class_.span_pages; ++page) {
    table_->kinds[page] = static_cast<uint8_t>(class_index_);
    table_->spans[page] = span;
  }
  const size_t count = std::min<size_t>(wanted, span->free);
  take_from(*span, objects, count);
  if (span->free > 0) link(*span);
  return count;
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
  Span*& head = partial_[fullness(span.free)];
  span.previous = nullptr;
  span.next = head;
  if (head != nullptr) head->previous = &span;
  head = &span;
}

// `old_free`: what span.free was when it was linked.
void CentralList::unlink(Span& span, size_t old_free) {
  Span*& head = partial_[fullness(old_free)];
  if (span.previous != nullptr) span.previous->next = span.next;
  if (span.next != nullptr) span.next->previous = span.previous;
  if (head == &span) head = span.next;
}

}  // namespace be::memory
