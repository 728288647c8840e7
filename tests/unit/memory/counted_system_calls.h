// The kernel's system calls, of which one can be made to fail, or all from one on, with ENOMEM.
//
// One thread at a time.
#pragma once

#include <sys/mman.h>

#include <cerrno>

#include "be/memory/system_calls.h"

namespace be {

class CountedSystemCalls : public memory::SystemCalls {
 public:
  // The call after `successes` more fails, and if `for_ever` so do all later ones.
  void fail_after(int successes, bool for_ever) {
    left_ = successes;
    for_ever_ = for_ever;
    failed_ = 0;
  }
  void heal() { left_ = -1; }
  int failed() const { return failed_; }

  int memfd_create(const char* name, unsigned flags) override {
    return fails() ? -1 : SystemCalls::memfd_create(name, flags);
  }
  int ftruncate(int fd, off_t length) override {
    return fails() ? -1 : SystemCalls::ftruncate(fd, length);
  }
  int add_seals(int fd, int seals) override {
    return fails() ? -1 : SystemCalls::add_seals(fd, seals);
  }
  void* map_shared(int fd, size_t length, size_t alignment) override {
    return fails() ? MAP_FAILED : SystemCalls::map_shared(fd, length, alignment);
  }
  int fallocate(int fd, int mode, off_t offset, off_t length) override {
    return fails() ? -1 : SystemCalls::fallocate(fd, mode, offset, length);
  }
  int madvise(void* address, size_t length, int advice) override {
    return fails() ? -1 : SystemCalls::madvise(address, length, advice);
  }

 private:
  bool fails() {
    if (left_ < 0) return false;
    if (left_ > 0) {
      --left_;
      return false;
    }
    if (!for_ever_) left_ = -1;
    ++failed_;
    errno = ENOMEM;
    return true;
  }

  int left_ = -1;
  bool for_ever_ = false;
  int failed_ = 0;
};

}  // namespace be
