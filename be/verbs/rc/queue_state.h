// States of an RC queue pair and the moves between them.
//
//   RESET -> INIT -> RTR -> RTS <-> SQD        any -> ERR        any -> RESET
//
//   posting receives   INIT, RTR, RTS, SQD, ERR (flushed at once)
//   posting sends      RTS, SQD (waits), ERR (flushed at once)
//
// Pure functions, any thread. InfiniBand specification 10.3.1; ibv_modify_qp(3).
#pragma once

#include <infiniband/verbs.h>

namespace be::rc {

bool may_move(ibv_qp_state from, ibv_qp_state to);

inline bool takes_receives(ibv_qp_state state) { return state != IBV_QPS_RESET; }
inline bool takes_sends(ibv_qp_state state) {
  return state == IBV_QPS_RTS || state == IBV_QPS_SQD || state == IBV_QPS_ERR;
}

}  // namespace be::rc
