// Mapping a file at an address that huge pages can use.
//
// The kernel maps a huge page of a file by one entry only where address and offset in the file
// agree within it; mmap alone promises whole small pages.
#pragma once

#include <cstddef>

namespace be {

inline constexpr size_t kHugePageBytes = size_t{2} << 20;

// mmap(2) of the first `length` bytes of `fd`, shared, for reading and writing, without reservation
// of memory, at a multiple of `alignment` (a power of two, at least a page). MAP_FAILED and errno
// on failure. Any thread; munmap(address, length) ends it.
void* map_shared_aligned(int fd, size_t length, size_t alignment);

}  // namespace be
