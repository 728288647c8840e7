// Verbs failures with names: errno, completion status, state, opcode, vendor code, peer.
//
// Pure functions, any thread.
#pragma once

#include <infiniband/verbs.h>

#include <string_view>

#include "be/base/status.h"

namespace be {

std::string_view wc_status_name(ibv_wc_status status);  // "IBV_WC_RNR_RETRY_EXC_ERR"
std::string_view wc_opcode_name(ibv_wc_opcode opcode);  // "IBV_WC_RECV_RDMA_WITH_IMM"
std::string_view qp_state_name(ibv_qp_state state);     // "RTS"

// "<verb> failed for <about>: ENOMEM (Cannot allocate memory)", the Code that fits the errno.
// `error_number` is positive. `about` names the object: "QP 17 to 10.0.0.2:9000".
Status verb_error(std::string_view verb, int error_number, std::string_view about);

// After an error completion only wr_id, status, qp_num and vendor_err are valid
// (ibv_poll_cq(3)): nothing else is read here. Code is kUnavailable for retry-exceeded and
// flush, kDeviceError otherwise.
Status completion_error(const ibv_wc& completion, std::string_view peer);

}  // namespace be
