// What one seed decides: the cluster, its options, its work and its faults.
//
// Drawn from the seed alone, extremes included: a window of one fragment, the smallest depths,
// grants and messages, a cap of a few blocks, hosts that are late. Where a draw would make a
// failure legitimate (a cap so small that messages are refused), `Knobs` says so, and the checks
// allow just that.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "be/sim/fabric.h"
#include "be/sim/host.h"
#include "be/transport/node.h"

namespace be::sim {

struct Fault {
  enum class Kind : uint8_t {
    kPause,         // stopped for a time that nobody may notice
    kStop,          // stopped for longer than the others' keepalive timeout
    kKill,          // killed, and not started again
    kKillAndStart,  // killed and started again
    kWorkRequest,   // one of its work requests fails
    kQueuePairs,    // its device breaks all its queue pairs (IBV_EVENT_QP_FATAL)
  };
  Kind kind{};
  uint32_t host = 0;
  Nanoseconds when{};
  Nanoseconds length{};        // of kPause, kStop; until the new start
  uint64_t work_requests = 0;  // kWorkRequest: the how manieth
};
const char* fault_name(Fault::Kind kind);

// How the application behaves.
struct Work {
  uint32_t conversations = 0;
  uint32_t messages = 0;            // at most, of a direction
  uint32_t message_bytes = 0;       // at most
  uint32_t outstanding = 0;         // messages that an end has handed to send() and not got back
  uint64_t close_early_one_in = 0;  // conversations that one end breaks off; 0: none
  Nanoseconds hold_max{};           // received Buffers are kept for up to so long
  Nanoseconds start_within{};
  uint32_t canaries = 0;  // buffers a host keeps and checks
  bool parameter_server =
      false;  // instead of conversations: clients fetch from and push to servers
};

struct HostKnobs {
  HostPace pace;
  NodeOptions node;
};

struct Knobs {
  FabricOptions fabric;
  Nanoseconds stream_latency{};
  std::vector<HostKnobs> hosts;
  Work work;
  std::vector<Fault> faults;
  bool refusals_allowed = false;  // memory may be too little for what the application sends

  std::string describe() const;
};

Knobs draw_knobs(Random random);

}  // namespace be::sim
