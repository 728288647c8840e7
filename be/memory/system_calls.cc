#include "be/memory/system_calls.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

namespace be::memory {

int SystemCalls::memfd_create(const char* name, unsigned flags) {
  return ::memfd_create(name, flags);
}

int SystemCalls::ftruncate(int fd, off_t length) { return ::ftruncate(fd, length); }

int SystemCalls::add_seals(int fd, int seals) { return ::fcntl(fd, F_ADD_SEALS, seals); }

// The kernel aligns to pages only: room for the next multiple is reserved, and what is over goes.
void* SystemCalls::map_shared(int fd, size_t length, size_t alignment) {
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

int SystemCalls::fallocate(int fd, int mode, off_t offset, off_t length) {
  return ::fallocate(fd, mode, offset, length);
}

int SystemCalls::madvise(void* address, size_t length, int advice) {
  return ::madvise(address, length, advice);
}

SystemCalls& kernel_system_calls() {
  static SystemCalls calls;
  return calls;
}

}  // namespace be::memory
