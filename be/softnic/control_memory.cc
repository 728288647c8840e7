#include "be/softnic/control_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <new>

namespace be::softnic {
namespace {

constexpr uint64_t kPage = 4096;
// Sparse: only what is used has pages. Enough for 4096 rings of 1024 slots.
constexpr uint64_t kRingBytes = uint64_t{1} << 30;
constexpr uint64_t kStagingGranule = 64;

constexpr uint64_t page_round(uint64_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

constexpr uint64_t kDoorbellsAt = 0;
constexpr uint64_t kQueuePairsAt =
    kDoorbellsAt + page_round(sizeof(Doorbell) * kMaxCompletionQueues);
constexpr uint64_t kRegionsAt = kQueuePairsAt + page_round(sizeof(QueuePairBlock) * kMaxQueuePairs);
constexpr uint64_t kRingsAt = kRegionsAt + page_round(sizeof(RegionEntry) * kMaxRegions);
constexpr uint64_t kStagingAt = kRingsAt + kRingBytes;

}  // namespace

RangeAllocator::RangeAllocator(uint64_t begin, uint64_t size, uint64_t granule)
    : granule_(granule) {
  if (size > 0) gaps_.emplace(begin, size);
}

bool RangeAllocator::allocate(uint64_t bytes, uint64_t* offset) {
  const uint64_t wanted = round(bytes);
  for (auto gap = gaps_.begin(); gap != gaps_.end(); ++gap) {
    if (gap->second < wanted) continue;
    *offset = gap->first;
    const uint64_t rest = gap->second - wanted;
    gaps_.erase(gap);
    if (rest > 0) gaps_.emplace(*offset + wanted, rest);
    return true;
  }
  return false;
}

void RangeAllocator::free(uint64_t offset, uint64_t bytes) {
  uint64_t length = round(bytes);
  auto next = gaps_.lower_bound(offset);
  if (next != gaps_.end() && offset + length == next->first) {
    length += next->second;
    next = gaps_.erase(next);
  }
  if (next != gaps_.begin()) {
    auto previous = std::prev(next);
    if (previous->first + previous->second == offset) {
      previous->second += length;
      return;
    }
  }
  gaps_.emplace(offset, length);
}

Result<std::unique_ptr<ControlMemory>> ControlMemory::create(size_t staging_bytes) {
  const uint64_t staging = page_round(staging_bytes);
  const size_t size = kStagingAt + staging;
  UniqueFd fd(memfd_create("byteexpress-softnic", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) return error_from_errno(errno, "softnic: memfd_create");
  if (ftruncate(fd.get(), static_cast<off_t>(size)) != 0) {
    return error_from_errno(errno, "softnic: size of the control memory");
  }
  if (fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return error_from_errno(errno, "softnic: sealing the control memory");
  }
  // Everything but rings and staging is small (3 MiB) and backed from the start.
  if (fallocate(fd.get(), 0, 0, static_cast<off_t>(kRingsAt)) != 0) {
    return error_from_errno(errno, "softnic: backing the control memory");
  }
  void* base = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd.get(), 0);
  if (base == MAP_FAILED) return error_from_errno(errno, "softnic: mapping the control memory");
  return std::unique_ptr<ControlMemory>(
      new ControlMemory(std::move(fd), static_cast<uint8_t*>(base), size, kStagingAt, staging));
}

ControlMemory::ControlMemory(UniqueFd fd, uint8_t* base, size_t size, uint64_t staging,
                             size_t staging_bytes)
    : fd_(std::move(fd)),
      base_(base),
      size_(size),
      staging_begin_(staging),
      staging_bytes_(staging_bytes),
      rings_(kRingsAt, kRingBytes, kPage),
      staging_(staging, staging_bytes, kStagingGranule) {}

ControlMemory::~ControlMemory() { munmap(base_, size_); }

Doorbell* ControlMemory::doorbell(uint32_t index) {
  return reinterpret_cast<Doorbell*>(base_ + kDoorbellsAt) + index;
}
QueuePairBlock* ControlMemory::queue_pair(uint32_t index) {
  return reinterpret_cast<QueuePairBlock*>(base_ + kQueuePairsAt) + index;
}
RegionEntry* ControlMemory::regions() { return reinterpret_cast<RegionEntry*>(base_ + kRegionsAt); }

Result<Slot*> ControlMemory::allocate_ring(uint32_t depth) {
  const uint64_t bytes = uint64_t{depth} * sizeof(Slot);
  uint64_t offset = 0;
  {
    std::lock_guard lock(mutex_);
    if (!rings_.allocate(bytes, &offset)) {
      return error(Code::kResourceExhausted, "softnic: no room for a ring of {} slots", depth);
    }
  }
  if (fallocate(fd_.get(), 0, static_cast<off_t>(offset), static_cast<off_t>(bytes)) != 0) {
    const Status status = error_from_errno(errno, "softnic: backing a ring");
    std::lock_guard lock(mutex_);
    rings_.free(offset, bytes);
    return status;
  }
  madvise(at(offset), page_round(bytes), MADV_POPULATE_WRITE);  // else faults on first use
  return reinterpret_cast<Slot*>(at(offset));
}

void ControlMemory::free_ring(Slot* ring, uint32_t depth) {
  const uint64_t bytes = uint64_t{depth} * sizeof(Slot);
  const uint64_t offset = offset_of(ring);
  // Gives the pages back, and the next ring here begins with zeroes.
  if (fallocate(fd_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
                static_cast<off_t>(page_round(bytes))) != 0) {
    std::memset(static_cast<void*>(ring), 0, bytes);
  }
  std::lock_guard lock(mutex_);
  rings_.free(offset, bytes);
}

uint8_t* ControlMemory::allocate_staging(uint64_t bytes) {
  std::lock_guard lock(mutex_);
  if (!staging_backed_) {
    if (staging_bytes_ == 0 || fallocate(fd_.get(), 0, static_cast<off_t>(staging_begin_),
                                         static_cast<off_t>(staging_bytes_)) != 0) {
      return nullptr;
    }
    staging_backed_ = true;
  }
  uint64_t offset = 0;
  return staging_.allocate(bytes, &offset) ? at(offset) : nullptr;
}

void ControlMemory::free_staging(uint8_t* place, uint64_t bytes) {
  std::lock_guard lock(mutex_);
  staging_.free(offset_of(place), bytes);
}

}  // namespace be::softnic
