#include "be/memory/system_calls.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "be/base/aligned_mapping.h"

namespace be::memory {

int SystemCalls::memfd_create(const char* name, unsigned flags) {
  return ::memfd_create(name, flags);
}

int SystemCalls::ftruncate(int fd, off_t length) { return ::ftruncate(fd, length); }

int SystemCalls::add_seals(int fd, int seals) { return ::fcntl(fd, F_ADD_SEALS, seals); }

void* SystemCalls::map_shared(int fd, size_t length, size_t alignment) {
  return map_shared_aligned(fd, length, alignment);
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

// No forked child may find that another thread was just making it.
[[maybe_unused]] static const SystemCalls& kBeforeForks = kernel_system_calls();

}  // namespace be::memory
