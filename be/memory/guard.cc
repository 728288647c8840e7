#include "be/memory/guard.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "be/base/log.h"

namespace be::memory {
namespace {

constexpr size_t kShownBytes = 16;

bool all_are(std::span<const uint8_t> bytes, uint8_t expected) {
  if (bytes.empty()) return true;
  // Equal to itself one byte on: all equal the first.
  return bytes[0] == expected && std::memcmp(bytes.data(), bytes.data() + 1, bytes.size() - 1) == 0;
}

void fill(std::span<uint8_t> bytes, uint8_t value) { std::fill(bytes.begin(), bytes.end(), value); }

std::string hex(std::span<const uint8_t> bytes) {
  std::string text;
  for (const uint8_t byte : bytes) {
    fmt::format_to(std::back_inserter(text), "{}{:02x}", text.empty() ? "" : " ", byte);
  }
  return text;
}

std::string_view what_happened(Guard::Fault fault) {
  switch (fault) {
    case Guard::Fault::kOverflow:
      return "a write behind its end";
    case Guard::Fault::kUnderflow:
      return "a write before its begin";
    case Guard::Fault::kWriteAfterFree:
      return "a write after its free";
    case Guard::Fault::kDoubleFree:
      return "a double free";
    case Guard::Fault::kInteriorFree:
      return "a free of a pointer that is not its begin";
    case Guard::Fault::kForeignFree:
      return "a free of what is not allocated";
  }
  return "";
}

std::string with_allocation(const Guard::Report& report) {
  std::string text =
      fmt::format("memory.guard: {} at {}: an allocation of {} bytes at {}",
                  what_happened(report.fault), report.pointer, report.size, report.allocation);
  fmt::format_to(std::back_inserter(text), " (offset {}), allocated by thread {}", report.offset,
                 report.allocated_by);
  if (report.freed_by != 0) {
    fmt::format_to(std::back_inserter(text), ", freed by thread {}", report.freed_by);
  }
  return text;
}

}  // namespace

std::span<uint8_t> Guard::Record::rear_canary() const {
  const auto rest = inner.subspan(front + size);
  return rest.first(std::min(rest.size(), kMaxRearBytes));
}

void Guard::abort_on_fault(const Report&) { std::abort(); }

Guard::Guard(Source& source, size_t quarantine_bytes, OnFault on_fault)
    : source_(source), quarantine_bytes_(quarantine_bytes), on_fault_(std::move(on_fault)) {}

Guard::~Guard() {
  check_all();
  release_quarantine();
}

Result<void*> Guard::allocate(size_t size, size_t alignment) {
  const size_t front = std::max(kFrontBytes, alignment);
  if (size > SIZE_MAX - front - kMinRearBytes) {
    return error(Code::kInvalidArgument, "an allocation of {} bytes", size);
  }
  const size_t bytes = front + size + kMinRearBytes;
  auto inner = source_.allocate(bytes, front);
  if (!inner.ok() && release_quarantine() > 0) inner = source_.allocate(bytes, front);
  if (!inner.ok()) return inner.status();
  assert(inner->size() >= bytes);

  const Record record{.inner = *inner, .front = front, .size = size, .allocated_by = ::gettid()};
  std::lock_guard lock(mutex_);
  fill(record.front_canary(), kCanaryByte);
  fill(record.rear_canary(), kCanaryByte);
  const bool is_new = records_.emplace(reinterpret_cast<uintptr_t>(inner->data()), record).second;
  assert(is_new);
  static_cast<void>(is_new);
  ++stats_.live_allocations;
  stats_.live_bytes += size;
  return record.user();
}

bool Guard::deallocate(void* pointer) {
  if (pointer == nullptr) return true;
  Reports reports;
  std::vector<std::span<uint8_t>> leaving;
  bool freed = false;
  {
    std::lock_guard lock(mutex_);
    freed = quarantine(pointer, reports);
    evict(quarantine_bytes_, leaving, reports);
  }
  for (const auto inner : leaving) source_.deallocate(inner.data());
  tell(reports);
  return freed;
}

size_t Guard::usable_size(const void* pointer) const {
  std::lock_guard lock(mutex_);
  const Record* record = record_around(pointer);
  return record != nullptr && record->user() == pointer && record->freed_by == 0 ? record->size : 0;
}

size_t Guard::check_all() {
  Reports reports;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [address, record] : records_) check(record, reports);
  }
  tell(reports);
  return reports.size();
}

size_t Guard::release_quarantine() {
  Reports reports;
  std::vector<std::span<uint8_t>> leaving;
  {
    std::lock_guard lock(mutex_);
    evict(0, leaving, reports);
  }
  size_t bytes = 0;
  for (const auto inner : leaving) {
    bytes += inner.size();
    source_.deallocate(inner.data());
  }
  tell(reports);
  return bytes;
}

void Guard::log_live(size_t most) const {
  std::lock_guard lock(mutex_);
  for (const auto& [address, record] : records_) {
    if (record.freed_by != 0) continue;
    if (most-- == 0) return;
    log_error("memory.guard: never freed: an allocation of {} bytes at {}, allocated by thread {}",
              record.size, static_cast<const void*>(record.user()), record.allocated_by);
  }
}

Guard::Stats Guard::stats() const {
  std::lock_guard lock(mutex_);
  return stats_;
}

// Canaries belong to their allocation: a pointer into one is off by that much.
const Guard::Record* Guard::record_around(const void* pointer) const {
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  const auto after = records_.upper_bound(address);
  if (after == records_.begin()) return nullptr;
  const auto& [begin, record] = *std::prev(after);
  return address - begin < record.inner.size() ? &record : nullptr;
}

bool Guard::quarantine(void* pointer, Reports& reports) {
  Record* record = record_around(pointer);
  if (record == nullptr || record->user() != pointer || record->freed_by != 0) {
    refuse(record, pointer, reports);
    return false;
  }
  check(*record, reports);
  record->freed_by = ::gettid();
  fill(record->content(), kFreedByte);
  quarantine_.push_back(reinterpret_cast<uintptr_t>(record->inner.data()));
  --stats_.live_allocations;
  stats_.live_bytes -= record->size;
  stats_.quarantined_bytes += record->inner.size();
  return true;
}

void Guard::evict(size_t most, std::vector<std::span<uint8_t>>& leaving, Reports& reports) {
  while (stats_.quarantined_bytes > most) {
    const auto oldest = records_.find(quarantine_.front());
    quarantine_.pop_front();
    const Record record = oldest->second;
    check(record, reports);
    records_.erase(oldest);
    stats_.quarantined_bytes -= record.inner.size();
    leaving.push_back(record.inner);
  }
}

void Guard::check(const Record& record, Reports& reports) {
  check_part(record, Fault::kUnderflow, record.front_canary(), kCanaryByte, reports);
  check_part(record, Fault::kOverflow, record.rear_canary(), kCanaryByte, reports);
  if (record.freed_by != 0) {
    check_part(record, Fault::kWriteAfterFree, record.content(), kFreedByte, reports);
  }
}

void Guard::check_part(const Record& record, Fault fault, std::span<uint8_t> part, uint8_t expected,
                       Reports& reports) {
  if (all_are(part, expected)) return;
  const auto first =
      std::find_if(part.begin(), part.end(), [&](uint8_t b) { return b != expected; });
  const auto changed = part.subspan(static_cast<size_t>(first - part.begin()));
  Report report{.fault = fault,
                .pointer = changed.data(),
                .allocation = record.user(),
                .size = record.size,
                .offset = changed.data() - record.user(),
                .allocated_by = record.allocated_by,
                .freed_by = record.freed_by,
                .message = {}};
  report.message =
      fmt::format("{}; {} bytes changed, and from there on it reads {}", with_allocation(report),
                  part.size() - static_cast<size_t>(std::count(part.begin(), part.end(), expected)),
                  hex(changed.first(std::min(changed.size(), kShownBytes))));
  reports.push_back(std::move(report));
  ++stats_.faults;
  fill(part, expected);
}

void Guard::refuse(const Record* record, const void* pointer, Reports& reports) {
  Report report{
      .fault = Fault::kForeignFree, .pointer = pointer, .allocation = nullptr, .message = {}};
  if (record == nullptr) {
    report.message = fmt::format(
        "memory.guard: {} at {}: it never was, or has left the quarantine; refused in thread {}",
        what_happened(report.fault), pointer, ::gettid());
  } else {
    report.fault = record->user() == pointer ? Fault::kDoubleFree : Fault::kInteriorFree;
    report.allocation = record->user();
    report.size = record->size;
    report.offset = static_cast<const uint8_t*>(pointer) - record->user();
    report.allocated_by = record->allocated_by;
    report.freed_by = record->freed_by;
    report.message = fmt::format("{}; refused in thread {}", with_allocation(report), ::gettid());
  }
  reports.push_back(std::move(report));
  ++stats_.faults;
}

void Guard::tell(const Reports& reports) {
  for (const Report& report : reports) {
    log_error("{}", report.message);
    if (on_fault_) on_fault_(report);
  }
}

}  // namespace be::memory
