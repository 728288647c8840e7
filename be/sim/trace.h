// What happened in a simulation: a rolling hash of all events, and the last of them in words.
//
// The same seed gives the same hash, twice and on every machine: nothing that goes in depends on
// an address, a kernel thread or a real clock. Pure.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "be/base/time.h"

namespace be::sim {

enum class Happening : uint8_t {
  kStep,         // a loop of `host` ran; a: 1 if it goes on
  kTask,         // a worker of `host` ran
  kPost,         // a: QP, b: opcode << 32 | bytes
  kDepart,       // a: QP, b: bytes
  kArrive,       // a: QP, b: bytes
  kAcknowledge,  // a: QP, b: count
  kComplete,     // a: QP, b: status
  kQueuePair,    // a: QP, b: new state
  kStream,       // a: bytes, b: 1 written, 2 read
  kDeliver,      // a: flow, b: message
  kSent,         // a: flow, b: message
  kClosed,       // a: flow, b: code
  kAnswer,       // a: call, b: code
  kFault,        // a: which, b: detail
};
const char* happening_name(Happening what);

class Trace {
 public:
  void note(Time when, Happening what, uint32_t host, uint64_t a, uint64_t b);

  uint64_t hash() const { return hash_; }
  uint64_t count() const { return count_; }
  // Of what matters to the work: messages delivered, sent, sockets closed, operations answered.
  uint64_t progress() const { return progress_; }
  std::vector<std::string> last() const;  // the oldest first

 private:
  struct Entry {
    Time when;
    Happening what;
    uint32_t host;
    uint64_t a;
    uint64_t b;
  };
  static constexpr size_t kKept = 64;

  std::array<Entry, kKept> entries_{};
  uint64_t hash_ = 0;
  uint64_t count_ = 0;
  uint64_t progress_ = 0;
};

}  // namespace be::sim
