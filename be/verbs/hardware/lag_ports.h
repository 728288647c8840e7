// Ports of a bonded mlx5 adapter (RoCE LAG), and which of them a queue pair sends through.
//
// By mlx5dv, the vendor's part of rdma-core: loaded where it is there, so that nothing needs it.
// Any thread. Not seen on hardware: no machine of ours has such an adapter.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

#include "be/base/status.h"

namespace be::hardware {

// 0: no mlx5 device, or not bonded.
uint8_t lag_port_count(ibv_context* context);

// Of a queue pair in RTS, on a device that has such ports. The adapter sends through another one
// while this one is down.
Status send_through_lag_port(ibv_qp* qp, uint8_t port);

}  // namespace be::hardware
