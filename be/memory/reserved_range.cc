#include "be/memory/reserved_range.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <cerrno>
#include <string>
#include <string_view>
#include <utility>

namespace be::memory {
namespace {

Status shortage(std::string_view call, size_t offset, size_t length, int error_number) {
  const std::string what =
      fmt::format("{} of {} bytes at offset {} of the registered memory", call, length, offset);
  return Status(Code::kResourceExhausted, error_from_errno(error_number, what).message());
}

}  // namespace

Result<std::unique_ptr<ReservedRange>> ReservedRange::create(size_t bytes, SystemCalls& calls) {
  UniqueFd fd(calls.memfd_create("byteexpress", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) return error_from_errno(errno, "memfd_create for registered memory");
  if (calls.ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) {
    return error_from_errno(errno, fmt::format("ftruncate of a memfd to {} bytes", bytes));
  }
  if (calls.add_seals(fd.get(), F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return error_from_errno(errno, "sealing the memfd of registered memory");
  }
  void* base = calls.map_shared(fd.get(), bytes);
  if (base == MAP_FAILED) {
    return error_from_errno(errno, fmt::format("mmap of {} bytes for registered memory", bytes));
  }
  return std::unique_ptr<ReservedRange>(
      new ReservedRange(std::move(fd), static_cast<uint8_t*>(base), bytes, calls));
}

ReservedRange::~ReservedRange() { ::munmap(base_, bytes_); }

void ReservedRange::protect() { ::mprotect(base_, bytes_, PROT_READ); }

Status ReservedRange::commit(size_t offset, size_t length) {
  const auto file_offset = static_cast<off_t>(offset);
  const auto file_length = static_cast<off_t>(length);
  if (calls_.fallocate(fd_.get(), 0, file_offset, file_length) != 0) {
    const int why = errno;
    // It may have got a part of the way.
    release(offset, length).ignore();
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

Status ReservedRange::release(size_t offset, size_t length) {
  if (calls_.fallocate(fd_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                       static_cast<off_t>(offset), static_cast<off_t>(length)) != 0) {
    return shortage("fallocate(FALLOC_FL_PUNCH_HOLE)", offset, length, errno);
  }
  return ok_status();
}

}  // namespace be::memory
