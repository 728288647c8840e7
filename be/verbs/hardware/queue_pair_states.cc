#include "be/verbs/hardware/queue_pair_states.h"

#include <cerrno>
#include <string>
#include <string_view>

#include "be/verbs/errors.h"

namespace be::hardware {
namespace {

constexpr Nanoseconds kAckTimeoutUnit = 4096ns;
constexpr uint8_t kLongestAckTimeout = 31;
constexpr uint8_t kHopLimit = 64;

std::string about(const ibv_qp* qp, std::string_view move) {
  return fmt::format("QP {} to {}", qp->qp_num, move);
}

Status modify(ibv_qp* qp, ibv_qp_attr& attributes, int mask) {
  if (const int why = ibv_modify_qp(qp, &attributes, mask); why != 0) {
    return verb_error("ibv_modify_qp", why, about(qp, qp_state_name(attributes.qp_state)));
  }
  return ok_status();
}

Status to_init(ibv_qp* qp, const Port& port) {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.pkey_index = 0;
  attributes.port_num = port.number;
  attributes.qp_access_flags =
      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
  return modify(qp, attributes,
                IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

}  // namespace

Result<CreatedQueuePair> create_queue_pair(ibv_pd* pd, const QueuePairOptions& options,
                                           const Port& port) {
  uint32_t wish = options.max_inline_bytes;
  for (;;) {
    ibv_qp_init_attr attributes{};
    attributes.qp_context = options.user;
    attributes.send_cq = options.send_cq;
    attributes.recv_cq = options.recv_cq;
    attributes.srq = options.srq;
    attributes.qp_type = IBV_QPT_RC;
    attributes.sq_sig_all = 0;
    attributes.cap.max_send_wr = options.send_depth;
    attributes.cap.max_recv_wr = options.recv_depth;
    attributes.cap.max_send_sge = options.max_send_sge;
    attributes.cap.max_recv_sge = options.max_recv_sge;
    attributes.cap.max_inline_data = wish;
    if (OwnedQueuePair qp(ibv_create_qp(pd, &attributes)); qp) {
      BE_RETURN_IF_ERROR(to_init(qp.get(), port));
      return CreatedQueuePair{std::move(qp), attributes.cap.max_inline_data};
    }
    const int why = errno;
    // Providers answer either of the two to an inline size that they cannot have.
    if (wish == 0 || (why != EINVAL && why != ENOMEM)) {
      return verb_error("ibv_create_qp", why,
                        fmt::format("{} send and {} receive work requests", options.send_depth,
                                    options.recv_depth));
    }
    wish = next_inline_wish(wish);
  }
}

uint8_t ack_timeout_code(Nanoseconds timeout) {
  uint8_t code = 1;
  while (code < kLongestAckTimeout && kAckTimeoutUnit * (int64_t{1} << code) < timeout) ++code;
  return code;
}

Status to_rtr(ibv_qp* qp, const Port& port, const Endpoint& remote, const ConnectOptions& options,
              const HardwareOptions& wire) {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTR;
  attributes.path_mtu = path_mtu(port.mtu, remote.mtu);
  attributes.dest_qp_num = remote.queue_pair_number;
  attributes.rq_psn = remote.packet_sequence_number;
  attributes.max_dest_rd_atomic = kReadsInFlight;
  attributes.min_rnr_timer = options.min_rnr_timer;
  attributes.ah_attr.port_num = port.number;
  attributes.ah_attr.dlid = remote.lid;
  attributes.ah_attr.sl = wire.service_level;
  if (port.link_layer == IBV_LINK_LAYER_ETHERNET) {
    attributes.ah_attr.is_global = 1;
    attributes.ah_attr.grh.dgid = remote.gid;
    attributes.ah_attr.grh.sgid_index = static_cast<uint8_t>(port.gid_index);
    attributes.ah_attr.grh.hop_limit = kHopLimit;
    attributes.ah_attr.grh.traffic_class = wire.traffic_class;
  }
  return modify(qp, attributes,
                IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                    IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
}

Status to_rts(ibv_qp* qp, uint32_t local_psn, const ConnectOptions& options,
              const HardwareOptions& wire) {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTS;
  attributes.sq_psn = local_psn;
  attributes.timeout = ack_timeout_code(wire.ack_timeout);
  attributes.retry_cnt = wire.retry_count;
  attributes.rnr_retry = options.rnr_retry;
  attributes.max_rd_atomic = kReadsInFlight;
  return modify(qp, attributes,
                IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                    IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC);
}

Status to_error(ibv_qp* qp) {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_ERR;
  return modify(qp, attributes, IBV_QP_STATE);
}

}  // namespace be::hardware
