// What a work request may look like, and what its completion looks like.
//
// Pure functions, any thread. Failures are the errno that ibv_post_send returns.
// ibv_post_send(3), ibv_poll_cq(3).
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

namespace be::rc {

// The memory that an SGE names.
inline uint8_t* bytes_of(const ibv_sge& sge) {
  return reinterpret_cast<uint8_t*>(sge.addr);  // NOLINT(performance-no-int-to-ptr): verbs' way
}

struct SendLimits {
  uint32_t max_sge = 0;
  uint32_t max_inline_bytes = 0;
};

// Largest message of RC (InfiniBand specification 9.7.2).
inline constexpr uint64_t kMaxMessageBytes = uint64_t{1} << 31;

// 0, or EINVAL (too many SGEs, inline too long, message too long) or EOPNOTSUPP (opcode).
// On success *length is the sum of the SGEs.
int check_send(const ibv_send_wr& request, const SendLimits& limits, uint32_t* length);

// SEND*, WRITE_WITH_IMM: consumes a receive of the peer, and is acknowledged by it.
inline bool is_message(ibv_wr_opcode opcode) {
  return opcode == IBV_WR_SEND || opcode == IBV_WR_SEND_WITH_IMM ||
         opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}
inline bool is_write(ibv_wr_opcode opcode) {
  return opcode == IBV_WR_RDMA_WRITE || opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}
inline bool has_immediate(ibv_wr_opcode opcode) {
  return opcode == IBV_WR_SEND_WITH_IMM || opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

inline ibv_wc_opcode completion_opcode(ibv_wr_opcode opcode) {
  return is_write(opcode) ? IBV_WC_RDMA_WRITE : IBV_WC_SEND;
}

}  // namespace be::rc
