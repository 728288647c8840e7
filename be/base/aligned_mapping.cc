#include "be/base/aligned_mapping.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstdint>

namespace be {

// The kernel aligns to pages only: room for the next multiple is reserved, and what is over goes.
void* map_shared_aligned(int fd, size_t length, size_t alignment) {
  const size_t room = length + alignment;
  void* reserved =
      ::mmap(nullptr, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED) return MAP_FAILED;
  const auto begin = reinterpret_cast<uintptr_t>(reserved);
  const size_t before = -begin & (alignment - 1);
  auto* aligned = static_cast<uint8_t*>(reserved) + before;
  if (::mmap(aligned, length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE | MAP_FIXED, fd,
             0) == MAP_FAILED) {
    const int why = errno;
    ::munmap(reserved, room);
    errno = why;
    return MAP_FAILED;
  }
  if (before > 0) ::munmap(reserved, before);
  if (before < alignment) ::munmap(aligned + length, alignment - before);
  return aligned;
}

}  // namespace be
