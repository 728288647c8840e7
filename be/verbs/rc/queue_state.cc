#include "be/verbs/rc/queue_state.h"

namespace be::rc {

bool may_move(ibv_qp_state from, ibv_qp_state to) {
  if (to == IBV_QPS_ERR || to == IBV_QPS_RESET) return true;
  switch (from) {
    case IBV_QPS_RESET:
      return to == IBV_QPS_INIT;
    case IBV_QPS_INIT:
      return to == IBV_QPS_INIT || to == IBV_QPS_RTR;
    case IBV_QPS_RTR:
      return to == IBV_QPS_RTS;
    case IBV_QPS_RTS:
    case IBV_QPS_SQD:
      return to == IBV_QPS_RTS || to == IBV_QPS_SQD;
    default:  // ERR and SQE leave by RESET only; SQE does not exist for RC
      return false;
  }
}

}  // namespace be::rc
