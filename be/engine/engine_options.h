// What an engine is built with, and what the two ends tell each other about it.
//
// Plain values. EngineOptions come from the configuration (blueprint 11: `engine.*`);
// EngineTerms travel in the handshake, bounded on arrival by check().
#pragma once

#include <cstdint>

#include "be/base/status.h"
#include "be/base/time.h"

namespace be {

struct EngineOptions {
  uint32_t send_queue_depth = 32;
  uint32_t recv_queue_depth = 32;  // d: receives for data SENDs
  uint32_t grants = 16;            // g: open grants we give
  uint32_t write_requests = 16;    // w: unanswered WriteRequests of ours
  uint32_t grant_cancels = 4;      // c: unanswered GrantCancels of ours
  // Largest SEND, engine header included: a 4 KiB payload and its headers save a round trip.
  uint32_t eager_bytes = 8192;
  uint32_t fragment_bytes = 0;              // S; 0: by the device kind and link rate
  uint32_t send_window_bytes = 0;           // Cwnd; 0: off
  uint32_t max_message_bytes = 1u << 30;    // largest that we take
  uint32_t grant_budget_bytes = 64u << 20;  // sum of the buffers granted by one engine
  // Entries of the SRQ that all engines of an I/O thread share; 0: each has receives of its own.
  uint32_t shared_receives = 0;
  Nanoseconds keepalive_interval = 1s;
  Nanoseconds keepalive_timeout = 5s;

  // Impossible combinations (S > window, depth 0 ...) name the configuration key.
  Status check() const;
};

uint32_t reserved_receives(const EngineOptions& options);  // g + r: no credit is spent for them
// Credits that the peer begins with: d, or the least that an engine on an SRQ always has.
uint32_t initial_credits(const EngineOptions& options);
// Engines that the SRQ has room for.
inline uint32_t engines_sharing(const EngineOptions& options) {
  return options.shared_receives / (reserved_receives(options) + initial_credits(options));
}

// One end's half of the contract: what its receives are posted for. Beside d and g these are
// r = 2 credit returns + w WriteRequests that it has not answered + w answers to its own + c
// GrantCancels (blueprint 6); the other end keeps to the smaller of these and its own.
struct EngineTerms {
  uint32_t recv_queue_depth = 0;  // d
  uint32_t initial_credits = 0;   // of d; all of them, unless receives are shared
  bool shared_receives = false;   // an SRQ: it deals credits by demand, and may be not ready
  uint32_t grants = 0;            // g
  uint32_t write_requests = 0;    // w
  uint32_t grant_cancels = 0;     // c
  uint32_t eager_bytes = 0;       // the smaller of both ends wins
  uint32_t max_message_bytes = 0;
  uint64_t keepalive_address = 0;  // word that the peer writes its sequence number into
  uint32_t keepalive_rkey = 0;
  Nanoseconds keepalive_interval{};

  Status check() const;  // every field within bounds, else kProtocol naming the field
};

}  // namespace be
