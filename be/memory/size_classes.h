// The sizes that small allocations are rounded up to, and the spans they are cut from.
//
//   16 32 48 64 | 128 192 256 | 320 384 448 512 | 640 768 896 1024 | ... | ... 14336 16384
//
// From 256 on four steps a doubling: at most a quarter is lost. From 64 on all are multiples of
// 64, and spans begin at a page, so objects of at least 64 bytes are aligned to 64.
// A span is 16 to 64 KiB: large enough for eight objects or 64 KiB, and nothing left over
// exceeds an eighth.
//
// Constants, computed by the compiler.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace be::memory {

inline constexpr size_t kMaxSmallBytes = 16384;

struct SizeClass {
  uint32_t bytes = 0;
  uint16_t span_pages = 0;
  uint16_t span_objects = 0;
  uint16_t cached = 0;  // most objects that one thread keeps: about 64 KiB, from 4 to 128
};

namespace size_classes_internal {

inline constexpr size_t kPage = 4096;
inline constexpr size_t kCount = 31;

constexpr SizeClass make_class(size_t bytes) {
  size_t span = 4 * kPage;
  while (span < 16 * kPage && (span < 8 * bytes || span % bytes > span / 8)) span += kPage;
  size_t cached = 65536 / bytes;
  if (cached > 128) cached = 128;
  return {.bytes = static_cast<uint32_t>(bytes),
          .span_pages = static_cast<uint16_t>(span / kPage),
          .span_objects = static_cast<uint16_t>(span / bytes),
          .cached = static_cast<uint16_t>(cached)};
}

constexpr std::array<SizeClass, kCount> make_classes() {
  std::array<SizeClass, kCount> classes;
  size_t index = 0;
  for (size_t bytes = 16; bytes <= kMaxSmallBytes;) {
    classes[index++] = make_class(bytes);
    size_t step = 16;
    while (step * 8 <= bytes) step *= 2;
    if (bytes >= 64 && step < 64) step = 64;
    bytes += step;
  }
  return classes;
}

constexpr std::array<uint8_t, kMaxSmallBytes / 16 + 1> make_index(
    const std::array<SizeClass, kCount>& classes) {
  std::array<uint8_t, kMaxSmallBytes / 16 + 1> index{};
  uint8_t klass = 0;
  for (size_t i = 0; i < index.size(); ++i) {
    while (classes[klass].bytes < i * 16) ++klass;
    index[i] = klass;
  }
  return index;
}

}  // namespace size_classes_internal

inline constexpr auto kSizeClasses = size_classes_internal::make_classes();
inline constexpr auto kClassBySize = size_classes_internal::make_index(kSizeClasses);
inline constexpr size_t kSizeClassCount = kSizeClasses.size();
inline constexpr size_t kMaxSpanObjects = 1024;
inline constexpr size_t kMaxCachedObjects = 128;
inline constexpr size_t kCachedObjectsInAll = [] {
  size_t sum = 0;
  for (const SizeClass& klass : kSizeClasses) sum += klass.cached;
  return sum;
}();

static_assert(kSizeClasses.front().bytes == 16 && kSizeClasses.back().bytes == kMaxSmallBytes);
static_assert(kSizeClasses.front().span_objects == kMaxSpanObjects);
static_assert(kSizeClasses.back().cached == 4);

// Requires 0 < size <= kMaxSmallBytes.
constexpr size_t size_class_of(size_t size) { return kClassBySize[(size + 15) / 16]; }

}  // namespace be::memory
