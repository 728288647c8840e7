// One range of addresses over one sparse memfd: where all blocks of a pool live.
//
//   file    | backed | hole ............ | backed | hole ........ |   sized once, sealed
//   memory  base() ............................................ base() + bytes()
//
// The file is sealed against shrinking, growing and further seals, so whoever maps it (a softnic
// peer) cannot be hit by SIGBUS from a truncation. Backing is taken ahead by fallocate and
// MADV_POPULATE_WRITE, so shortage is a Status here and not SIGBUS at first touch.
//
// Huge pages (2 MiB), where a part is a multiple of them: the kernel clears one in an eighth of the
// time that 512 small ones take, NICs and page tables have one entry for it.
//   transparent   fallocate of its first page, then MADV_COLLAPSE (Linux 6.1), which works whatever
//                 /sys/kernel/mm/transparent_hugepage says. Whatever it refuses is made of small
//                 pages: never an error. Blocks are resident as a whole in any case, so it costs
//                 no memory.
//   reserved      from the pool of vm.nr_hugepages; its shortage is kResourceExhausted.
//
// In a forked child the memory can only be read: the parent, its peers and its NIC go on using it.
//
// commit and release on different parts may run on several threads at once. Never aborts.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "be/base/fork.h"
#include "be/base/status.h"
#include "be/base/unique_fd.h"
#include "be/memory/pool_options.h"
#include "be/memory/system_calls.h"

namespace be::memory {

class ReservedRange {
 public:
  // The range begins at a multiple of `alignment` (a power of two, at least a page).
  static Result<std::unique_ptr<ReservedRange>> create(size_t bytes, size_t alignment,
                                                       HugePages huge_pages, SystemCalls& calls);
  ~ReservedRange();
  ReservedRange(const ReservedRange&) = delete;
  ReservedRange& operator=(const ReservedRange&) = delete;

  uint8_t* base() const { return base_; }
  size_t bytes() const { return bytes_; }
  int fd() const { return fd_.get(); }

  // Gives a part memory; offset and length are whole pages. Shortage is kResourceExhausted with
  // the errno, and leaves a hole again.
  Status commit(size_t offset, size_t length);
  Status release(size_t offset, size_t length);  // punches a hole: peers see zeroes from now on

 private:
  ReservedRange(UniqueFd fd, uint8_t* base, size_t bytes, HugePages huge_pages, SystemCalls& calls)
      : fd_(std::move(fd)),
        base_(base),
        bytes_(bytes),
        huge_pages_(huge_pages),
        calls_(calls),
        can_collapse_(huge_pages == HugePages::kTransparent),
        fork_watcher_([](void* self) { static_cast<ReservedRange*>(self)->protect(); }, this) {}
  bool commit_huge_pages(size_t offset, size_t length);
  void protect();

  UniqueFd fd_;
  uint8_t* base_;
  size_t bytes_;
  const HugePages huge_pages_;
  SystemCalls& calls_;
  std::atomic<bool> can_collapse_;  // as far as we know
  const ForkWatcher fork_watcher_;
};

}  // namespace be::memory
