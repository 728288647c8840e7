// Tells AddressSanitizer which memory nobody may touch; nothing in builds without it.
//
//   poison(free memory)  ->  any access by instrumented code ends with "use-after-poison"
//
// ASan knows memory in granules of 8 bytes: begin at a multiple of 8, and end at one or where the
// bytes behind are poisoned too. Any thread, on memory that it owns at the moment. The kernel, a
// NIC and other processes see no difference: what they write, only the guard finds (guard.h).
#pragma once

#include <cstddef>

#if defined(__SANITIZE_ADDRESS__)
#define BE_HAS_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define BE_HAS_ASAN 1
#endif
#endif

#ifdef BE_HAS_ASAN
#include <sanitizer/asan_interface.h>
#endif

namespace be::memory {

#ifdef BE_HAS_ASAN
inline constexpr bool kPoisons = true;
inline void poison(const void* memory, size_t bytes) { __asan_poison_memory_region(memory, bytes); }
inline void unpoison(const void* memory, size_t bytes) {
  __asan_unpoison_memory_region(memory, bytes);
}
#else
inline constexpr bool kPoisons = false;
inline void poison(const void*, size_t) {}
inline void unpoison(const void*, size_t) {}
#endif

}  // namespace be::memory
