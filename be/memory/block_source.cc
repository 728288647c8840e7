#include "be/memory/block_source.h"

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "be/base/aligned_mapping.h"
#include "be/base/log.h"
#include "be/memory/poison.h"

namespace be::memory {
namespace {

constexpr size_t kMinBlockBytes = size_t{64} << 10;
constexpr size_t kMaxBlockBytes = size_t{1} << 30;
constexpr size_t kMaxCapBytes = size_t{1} << 43;  // 2^31 pages: page numbers have 32 bits

size_t quarter_of_ram() {
  return static_cast<size_t>(::sysconf(_SC_PHYS_PAGES)) *
         static_cast<size_t>(::sysconf(_SC_PAGESIZE)) / 4;
}

}  // namespace

Result<std::unique_ptr<BlockSource>> BlockSource::create(const PoolOptions& options,
                                                         SystemCalls& calls) {
  const size_t block_bytes = options.block_bytes;
  if (!std::has_single_bit(block_bytes) || block_bytes < kMinBlockBytes ||
      block_bytes > kMaxBlockBytes) {
    return error(Code::kInvalidArgument,
                 "memory.block_size_bytes = {} must be a power of two from {} to {}", block_bytes,
                 kMinBlockBytes, kMaxBlockBytes);
  }
  const size_t wanted = options.cap_bytes != 0 ? options.cap_bytes : quarter_of_ram();
  const size_t cap = wanted & ~(block_bytes - 1);
  if (cap == 0 || cap > kMaxCapBytes) {
    return error(Code::kInvalidArgument,
                 "memory.cap_bytes = {} must be from memory.block_size_bytes = {} to {}", wanted,
                 block_bytes, kMaxCapBytes);
  }
  if (options.huge_pages == HugePages::kReserved && block_bytes % kHugePageBytes != 0) {
    return error(Code::kInvalidArgument,
                 "memory.block_size_bytes = {} must be a multiple of {} with memory.huge_pages = "
                 "\"reserved\"",
                 block_bytes, kHugePageBytes);
  }
  const size_t alignment = std::max(block_bytes, kHugePageBytes);
  BE_ASSIGN_OR_RETURN(auto range, ReservedRange::create(cap, alignment, options.huge_pages, calls));
  return std::unique_ptr<BlockSource>(new BlockSource(std::move(range), block_bytes));
}

BlockSource::BlockSource(std::unique_ptr<ReservedRange> range, size_t block_bytes)
    : block_bytes_(block_bytes),
      range_(std::move(range)),
      regions_(std::make_unique<RegionTable>(*range_, block_bytes)),
      used_(block_count()) {}

// Others may be mapped there next.
BlockSource::~BlockSource() {
  if (!kPoisons) return;
  for (size_t block = 0; block < used_.size(); ++block) {
    if (used_[block]) unpoison(range_->base() + block * block_bytes_, block_bytes_);
  }
}

Result<uint32_t> BlockSource::grow(uint32_t count) {
  BE_ASSIGN_OR_RETURN(const uint32_t first, reserve(count));
  const size_t offset = first * block_bytes_;
  const size_t length = count * block_bytes_;
  Status status = range_->commit(offset, length);
  if (status.ok()) {
    status = regions_->register_run(first, count);
    if (!status.ok()) range_->release(offset, length).ignore();  // the number is free all the same
  }
  if (!status.ok()) {
    unreserve(first, count);
    return status;
  }
  poison(range_->base() + offset, length);
  return first;
}

void BlockSource::give_back(uint32_t first_block, uint32_t count) {
  if (const Status status = regions_->deregister_run(first_block); !status.ok()) {
    log_error("{} blocks of registered memory are lost: {}", count, status.to_string());
    return;
  }
  unpoison(range_->base() + first_block * block_bytes_, count * block_bytes_);
  const Status status = range_->release(first_block * block_bytes_, count * block_bytes_);
  if (!status.ok()) log_warn("memory is kept until it is used again: {}", status.to_string());
  unreserve(first_block, count);
}

Status BlockSource::charge(size_t bytes) {
  std::lock_guard lock(mutex_);
  return charge_locked(bytes);
}

void BlockSource::refund(size_t bytes) {
  std::lock_guard lock(mutex_);
  registered_bytes_.store(registered_bytes() - bytes, std::memory_order_relaxed);
}

Status BlockSource::charge_locked(size_t bytes) {
  if (bytes > cap_bytes() - registered_bytes()) {
    return error(
        Code::kResourceExhausted,
        "memory.cap_bytes = {} is reached: {} bytes are registered, {} more were asked for",
        cap_bytes(), registered_bytes(), bytes);
  }
  const size_t now = registered_bytes() + bytes;
  registered_bytes_.store(now, std::memory_order_relaxed);
  peak_bytes_.store(std::max(now, peak_registered_bytes()), std::memory_order_relaxed);
  return ok_status();
}

Result<uint32_t> BlockSource::reserve(uint32_t count) {
  std::lock_guard lock(mutex_);
  const size_t bytes = count * block_bytes_;
  if (bytes <= cap_bytes() - registered_bytes()) {  // else charge_locked tells why
    BE_ASSIGN_OR_RETURN(const uint32_t first, find_free_run(count));
    BE_RETURN_IF_ERROR(charge_locked(bytes));
    std::fill_n(used_.begin() + first, count, true);
    return first;
  }
  return charge_locked(bytes);
}

Result<uint32_t> BlockSource::find_free_run(uint32_t count) const {
  uint32_t length = 0;
  if (count == 1) {
    const auto found = std::find(used_.begin(), used_.end(), false);
    if (found != used_.end()) return static_cast<uint32_t>(found - used_.begin());
  } else {
    for (size_t block = used_.size(); block-- > 0;) {
      length = used_[block] ? 0 : length + 1;
      if (length == count) return static_cast<uint32_t>(block);
    }
  }
  return error(Code::kResourceExhausted,
               "no {} neighbouring blocks of {} bytes are free within memory.cap_bytes = {} ({} "
               "bytes are registered)",
               count, block_bytes_, cap_bytes(), registered_bytes());
}

void BlockSource::unreserve(uint32_t first_block, uint32_t count) {
  std::lock_guard lock(mutex_);
  std::fill_n(used_.begin() + first_block, count, false);
  registered_bytes_.store(registered_bytes() - count * block_bytes_, std::memory_order_relaxed);
}

}  // namespace be::memory
