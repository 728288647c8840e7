#include "be/memory/reserved_range.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <cerrno>
#include <string>
#include <string_view>
#include <utility>

#include "be/base/aligned_mapping.h"

// Not in the headers of Debian 12's C library.
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif
#ifndef MFD_HUGE_2MB
#define MFD_HUGE_2MB (21U << 26)
#endif

namespace be::memory {
namespace {

constexpr off_t kSmallPageBytes = 4096;

Status shortage(std::string_view call, size_t offset, size_t length, int error_number) {
  const std::string what =
      fmt::format("{} of {} bytes at offset {} of the registered memory", call, length, offset);
  return Status(Code::kResourceExhausted, error_from_errno(error_number, what).message());
}

}  // namespace

Result<std::unique_ptr<ReservedRange>> ReservedRange::create(size_t bytes, size_t alignment,
                                                             HugePages huge_pages,
                                                             SystemCalls& calls) {
  unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  if (huge_pages == HugePages::kReserved) flags |= MFD_HUGETLB | MFD_HUGE_2MB;
  UniqueFd fd(calls.memfd_create("byteexpress", flags));
  if (!fd.valid()) return error_from_errno(errno, "memfd_create for registered memory");
  if (calls.ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) {
    return error_from_errno(errno, fmt::format("ftruncate of a memfd to {} bytes", bytes));
  }
  if (calls.add_seals(fd.get(), F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return error_from_errno(errno, "sealing the memfd of registered memory");
  }
  void* base = calls.map_shared(fd.get(), bytes, alignment);
  if (base == MAP_FAILED) {
    return error_from_errno(errno, fmt::format("mmap of {} bytes for registered memory", bytes));
  }
  return std::unique_ptr<ReservedRange>(
      new ReservedRange(std::move(fd), static_cast<uint8_t*>(base), bytes, huge_pages, calls));
}

ReservedRange::~ReservedRange() { ::munmap(base_, bytes_); }

void ReservedRange::protect() { ::mprotect(base_, bytes_, PROT_READ); }

Status ReservedRange::commit(size_t offset, size_t length) {
  const auto file_offset = static_cast<off_t>(offset);
  const auto file_length = static_cast<off_t>(length);
  if (can_collapse_.load(std::memory_order_relaxed) && commit_huge_pages(offset, length)) {
    return ok_status();
  }
  if (calls_.fallocate(fd_.get(), 0, file_offset, file_length) != 0) {
    const int why = errno;
    // It may have got a part of the way.
    release(offset, length).ignore();
    if (huge_pages_ == HugePages::kReserved) {
      return shortage("fallocate of huge pages (vm.nr_hugepages)", offset, length, why);
    }
    return shortage("fallocate", offset, length, why);
  }
  // EINVAL: a kernel before 5.14 has no such advice. The file has its pages already, so only
  // page faults remain, later.
  if (calls_.madvise(base_ + offset, length, MADV_POPULATE_WRITE) != 0 && errno != EINVAL) {
    const int why = errno;
    release(offset, length).ignore();
    return shortage("madvise(MADV_POPULATE_WRITE)", offset, length, why);
  }
  return ok_status();
}

// False: (partly) not done, small pages must fill what is missing.
bool ReservedRange::commit_huge_pages(size_t offset, size_t length) {
  if (offset % kHugePageBytes != 0 || length % kHugePageBytes != 0) return false;
  for (size_t at = offset; at < offset + length; at += kHugePageBytes) {
    // A hole as a whole is not collapsed.
    if (calls_.fallocate(fd_.get(), 0, static_cast<off_t>(at), kSmallPageBytes) != 0) return false;
  }
  if (calls_.madvise(base_ + offset, length, MADV_COLLAPSE) == 0) return true;
  // A kernel without it, or one that never collapses shared memory: not asked again. Otherwise
  // it had no huge page this time.
  if (errno == EINVAL) can_collapse_.store(false, std::memory_order_relaxed);
  return false;
}

Status ReservedRange::release(size_t offset, size_t length) {
  if (calls_.fallocate(fd_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                       static_cast<off_t>(offset), static_cast<off_t>(length)) != 0) {
    return shortage("fallocate(FALLOC_FL_PUNCH_HOLE)", offset, length, errno);
  }
  return ok_status();
}

}  // namespace be::memory
