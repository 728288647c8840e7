// Making an RC queue pair and moving it through its states.
//
//   RESET --create--> INIT --to_rtr--> RTR --to_rts--> RTS --to_error--> ERR
//
// Failure: a Status that names the move and the errno. The thread of the queue pair.
// Attributes as in ibv_modify_qp(3); InfiniBand specification 1.4, 10.3.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <memory>

#include "be/base/status.h"
#include "be/base/time.h"
#include "be/verbs/device.h"
#include "be/verbs/hardware/endpoint.h"
#include "be/verbs/hardware/port.h"
#include "be/verbs/hardware_device.h"

namespace be::hardware {

struct DestroyQueuePair {
  void operator()(ibv_qp* qp) const { ibv_destroy_qp(qp); }
};
using OwnedQueuePair = std::unique_ptr<ibv_qp, DestroyQueuePair>;

struct CreatedQueuePair {
  OwnedQueuePair qp;
  uint32_t max_inline_bytes = 0;  // granted
};

// What to ask for when `refused` inline bytes were too many; ends at 0.
inline uint32_t next_inline_wish(uint32_t refused) { return refused <= 16 ? 0 : refused / 2; }

// ibv_qp_attr::timeout is 4.096 us * 2^code: the least code that is no shorter; 1 ... 31 (0 would
// be for ever).
uint8_t ack_timeout_code(Nanoseconds timeout);

// In INIT on `port`; steps the inline wish down until the provider grants it.
Result<CreatedQueuePair> create_queue_pair(ibv_pd* pd, const QueuePairOptions& options,
                                           const Port& port);

// Outstanding READs and atomics that both directions are set up for.
inline constexpr uint8_t kReadsInFlight = 1;

// The kernel resolves a RoCE peer's link address here and may wait for it, a second at most; the
// handshake's connection to the same address has made it known already.
Status to_rtr(ibv_qp* qp, const Port& port, const Endpoint& remote, const ConnectOptions& options,
              const HardwareOptions& wire);
Status to_rts(ibv_qp* qp, uint32_t local_psn, const ConnectOptions& options,
              const HardwareOptions& wire);
Status to_error(ibv_qp* qp);

}  // namespace be::hardware
