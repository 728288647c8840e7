// Fabric: what connects the simulated RNICs, and which queue pairs there are.
//
//   depart --bytes / rate, latency, jitter--> arrive         in order for each queue pair
//
// First stage of FABRIC.md: every pair of hosts has a wire of its own, nothing is dropped. The two
// ways in which memory is touched are both modelled (Touch), as devices differ in just this.
#pragma once

#include <cstdint>
#include <map>

#include "be/base/time.h"
#include "be/sim/simulation.h"

namespace be::sim {

struct QueuePair;

enum class Touch : uint8_t {
  // The NIC copies: sent bytes are read when they depart, and a destroyed QP is quiet at once.
  kByNic,
  // The peer's CPU copies, as with softnic: a SEND's bytes are read when they arrive, a stopped
  // peer is in the middle of a copy, and a retired QP is quiet when its peer has confirmed.
  kByPeer,
};

struct FabricOptions {
  Touch touch = Touch::kByNic;
  uint32_t mtu = 1024;
  Nanoseconds latency = 2us;
  Nanoseconds jitter = 0ns;               // of packets and acknowledgements: up to so much more
  uint64_t picoseconds_per_byte = 80;     // 100 Gbps
  Nanoseconds completion_delay = 0ns;     // completions are held back for up to so long
  Nanoseconds transport_timeout = 200ms;  // nothing acknowledged for so long: retries exceeded
  uint32_t inline_bytes = 64;
};

class Fabric {
 public:
  Fabric(Simulation& simulation, const FabricOptions& options)
      : simulation_(simulation), options_(options) {}

  Simulation& simulation() { return simulation_; }
  const FabricOptions& options() const { return options_; }

  uint32_t next_number() { return ++last_number_; }  // of a QP: never used again
  void add(uint32_t number, QueuePair* qp) { queue_pairs_[number] = qp; }
  void remove(uint32_t number) { queue_pairs_.erase(number); }
  QueuePair* find(uint32_t number) const {
    const auto found = queue_pairs_.find(number);
    return found == queue_pairs_.end() ? nullptr : found->second;
  }
  const std::map<uint32_t, QueuePair*>& queue_pairs() const { return queue_pairs_; }

  Nanoseconds flight();  // of one packet
  Nanoseconds serialisation(uint32_t bytes) const {
    return Nanoseconds((bytes + kHeaderBytes) * options_.picoseconds_per_byte / 1000);
  }

 private:
  static constexpr uint32_t kHeaderBytes = 48;

  Simulation& simulation_;
  const FabricOptions options_;
  std::map<uint32_t, QueuePair*> queue_pairs_;
  uint32_t last_number_ = 0;
};

}  // namespace be::sim
