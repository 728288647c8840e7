// The system calls that make registered memory, replaceable so that tests can let each fail.
//
// Same arguments, results and errno as in their man pages. Any thread; no state of its own.
#pragma once

#include <sys/types.h>

#include <cstddef>

namespace be::memory {

class SystemCalls {
 public:
  virtual ~SystemCalls() = default;

  virtual int memfd_create(const char* name, unsigned flags);
  virtual int ftruncate(int fd, off_t length);
  virtual int add_seals(int fd, int seals);  // fcntl F_ADD_SEALS
  // map_shared_aligned (base/aligned_mapping.h).
  virtual void* map_shared(int fd, size_t length, size_t alignment);
  virtual int fallocate(int fd, int mode, off_t offset, off_t length);
  virtual int madvise(void* address, size_t length, int advice);
};

SystemCalls& kernel_system_calls();

}  // namespace be::memory
