// Guard: stands between a pool and its users in a debugging run and names every misuse of memory.
//
//   inner   [ front canary | the user's bytes | rear canary ]
//           ^ of the source  ^ what the user holds, aligned as asked; bounds exact to the byte
//
//   allocate -> live -> deallocate -> quarantined -> gone
//
//   live          both canaries are whole, or somebody wrote beside the allocation
//   quarantined   so is the user's part, all kFreedByte, or somebody wrote after the free: a
//                 thread of ours, or a peer or NIC that still had a key
//   gone          back with the source, the oldest first: when more than quarantine_bytes wait,
//                 or when the source has nothing else to give
//
//   deallocate of a live allocation      checks its canaries and quarantines it
//              of a quarantined one      double free, refused
//              of a pointer inside one   interior free, refused
//              of anything else          foreign free, refused
//
// Memory is checked when it is freed, when it leaves the quarantine, and by check_all. A fault is
// logged as an error with the pointer, the allocation, its size and the threads concerned,
// counted, and told to `on_fault` (abort_on_fault for a core at once; on the thread that found
// it, without a lock). Damage is repaired, so each is told once, and the program goes on.
//
// Any thread; one lock, held while memory is compared: slow, and meant to be. Not to be used in a
// forked child. What an allocation costs: at least 80 bytes, a record, and two passes over it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "be/base/status.h"

namespace be::memory {

class Guard {
 public:
  // Where memory comes from: the pool below.
  class Source {
   public:
    virtual ~Source() = default;
    // At least `bytes` bytes, all of which may be touched; `alignment` is a power of two.
    virtual Result<std::span<uint8_t>> allocate(size_t bytes, size_t alignment) = 0;
    virtual void deallocate(uint8_t* memory) = 0;
  };

  enum class Fault : uint8_t {
    kOverflow,
    kUnderflow,
    kWriteAfterFree,
    kDoubleFree,
    kInteriorFree,
    kForeignFree,
  };
  struct Report {
    Fault fault;
    const void* pointer;     // what was to be freed, or the first byte that changed
    const void* allocation;  // null for a foreign pointer
    size_t size = 0;         // of the allocation, as asked for
    int64_t offset = 0;      // pointer - allocation
    int allocated_by = 0;    // thread ids as of gettid()
    int freed_by = 0;        // 0: it is alive
    std::string message;
  };
  using OnFault = std::function<void(const Report&)>;
  static void abort_on_fault(const Report&);

  struct Stats {
    size_t live_allocations = 0;
    size_t live_bytes = 0;         // as asked for
    size_t quarantined_bytes = 0;  // with canaries
    uint64_t faults = 0;
  };

  static constexpr uint8_t kCanaryByte = 0xca;
  static constexpr uint8_t kFreedByte = 0xdf;
  static constexpr size_t kFrontBytes = 64;  // or the alignment, if larger
  static constexpr size_t kMinRearBytes = 16;
  static constexpr size_t kMaxRearBytes = 4096;  // what the source gives beyond is not looked at

  // The source must outlive the guard. `on_fault` may be empty.
  Guard(Source& source, size_t quarantine_bytes, OnFault on_fault);
  ~Guard();  // checks all; live allocations stay with their owners
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;

  // Fails as the source does, once the quarantine is empty.
  Result<void*> allocate(size_t size, size_t alignment);
  bool deallocate(void* pointer);                 // false: refused. Null is ignored
  size_t usable_size(const void* pointer) const;  // as asked for; 0 if it is no live allocation
  size_t check_all();                             // how many faults it has found
  size_t release_quarantine();                    // how many bytes went back to the source
  void log_live(size_t most) const;               // tells of leaks: up to `most`, lowest first
  Stats stats() const;

 private:
  struct Record {
    std::span<uint8_t> inner;
    size_t front = 0;
    size_t size = 0;
    int allocated_by = 0;
    int freed_by = 0;  // 0: live

    uint8_t* user() const { return inner.data() + front; }
    std::span<uint8_t> front_canary() const { return inner.first(front); }
    std::span<uint8_t> content() const { return inner.subspan(front, size); }
    std::span<uint8_t> rear_canary() const;
  };
  using Records = std::map<uintptr_t, Record>;  // by inner address, live and quarantined
  using Reports = std::vector<Report>;

  const Record* record_around(const void* pointer) const;
  Record* record_around(const void* pointer) {
    return const_cast<Record*>(std::as_const(*this).record_around(pointer));
  }
  bool quarantine(void* pointer, Reports& reports);
  void evict(size_t most, std::vector<std::span<uint8_t>>& leaving, Reports& reports);
  void check(const Record& record, Reports& reports);
  void check_part(const Record& record, Fault fault, std::span<uint8_t> part, uint8_t expected,
                  Reports& reports);
  void refuse(const Record* record, const void* pointer, Reports& reports);
  void tell(const Reports& reports);

  Source& source_;
  const size_t quarantine_bytes_;
  const OnFault on_fault_;

  mutable std::mutex mutex_;  // the rest, and the contents of canaries and quarantined memory
  Records records_;
  std::deque<uintptr_t> quarantine_;  // keys of records, oldest first
  Stats stats_;
};

}  // namespace be::memory
