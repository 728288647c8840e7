// The sizes that small allocations are rounded up to, and the spans they are cut from.
//
//   16 32 48 64 | 128 192 ... 1024 | 1152 1280 ... 2048 | 2304 ... 4096 | ... | 15360 16384
//
// Multiples of 16 up to 64, of 64 up to 1024; from there on eight steps a doubling: a twenty-fourth
// is lost on average, an eighth at most. From 64 on all are multiples of 64, and spans begin at a
// page, so objects of at least 64 bytes are aligned to 64.
//
// A span is the smallest number of pages, 4 to 16, with at least four objects and at most 3 % left
// over: small spans are more often empty as a whole, and then serve other sizes.
//
// Constants, computed by the compiler.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace be::memory {

inline constexpr size_t kPageBytes = 4096;
inline constexpr int kPageShift = 12;
inline constexpr size_t kMaxSmallBytes = 16384;

struct SizeClass {
  uint32_t bytes = 0;
  uint16_t span_pages = 0;
  uint16_t span_objects = 0;
  uint16_t cached = 0;  // most objects that one thread keeps: about 128 KiB, from 8 to 128
};

namespace size_classes_internal {

inline constexpr size_t kCount = 51;
inline constexpr size_t kCachedBytes = 131072;

constexpr SizeClass make_class(size_t bytes) {
  size_t pages = 4;
  while (pages * kPageBytes < 4 * bytes ||
         pages * kPageBytes % bytes * 100 > pages * kPageBytes * 3)
    ++pages;
  size_t cached = kCachedBytes / bytes;
  if (cached > 128) cached = 128;
  return {.bytes = static_cast<uint32_t>(bytes),
          .span_pages = static_cast<uint16_t>(pages),
          .span_objects = static_cast<uint16_t>(pages * kPageBytes / bytes),
          .cached = static_cast<uint16_t>(cached)};
}

constexpr std::array<SizeClass, kCount> make_classes() {
  std::array<SizeClass, kCount> classes;
  size_t index = 0;
  for (size_t bytes = 16; bytes <= kMaxSmallBytes;) {
    classes[index++] = make_class(bytes);
    if (bytes < 64) {
      bytes += 16;
    } else {
      size_t step = 64;
      while (step * 16 <= bytes) step *= 2;
      bytes += step;
    }
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
static_assert(kSizeClasses.back().cached == 8);

// Requires 0 < size <= kMaxSmallBytes.
constexpr size_t size_class_of(size_t size) { return kClassBySize[(size + 15) / 16]; }

}  // namespace be::memory
