#include "be/softnic/queue_pair.h"

#include <bit>
#include <cstring>

#include "be/base/failpoint.h"
#include "be/softnic/data_path.h"

namespace be::softnic {

StoredRequests::StoredRequests(uint32_t depth, const rc::SendLimits& limits)
    : mask_(std::bit_ceil(depth) - 1),
      limits_(limits),
      requests_(new ibv_send_wr[mask_ + 1]),
      sges_(new ibv_sge[(size_t{mask_} + 1) * (limits.max_sge + 1)]),
      inline_bytes_(new uint8_t[(size_t{mask_} + 1) * limits.max_inline_bytes]) {}

// The user may reuse the request and, if it was inline, its bytes as soon as posting returns.
void StoredRequests::store(uint32_t index, const ibv_send_wr& request) {
  const size_t place = index & mask_;
  ibv_send_wr& copy = requests_[place];
  ibv_sge* sges = &sges_[place * (limits_.max_sge + 1)];
  copy = request;
  copy.next = nullptr;
  copy.sg_list = sges;
  if (request.send_flags & IBV_SEND_INLINE) {
    uint8_t* const bytes = &inline_bytes_[place * limits_.max_inline_bytes];
    uint32_t length = 0;
    for (int i = 0; i < request.num_sge; ++i) {
      const ibv_sge& sge = request.sg_list[i];
      if (sge.length == 0) continue;  // its address may be null
      std::memcpy(bytes + length, rc::bytes_of(sge), sge.length);
      length += sge.length;
    }
    sges[0] = {.addr = reinterpret_cast<uint64_t>(bytes), .length = length, .lkey = 0};
    copy.num_sge = 1;
  } else {
    for (int i = 0; i < request.num_sge; ++i) sges[i] = request.sg_list[i];
  }
}

void after_failure(QueuePair& qp, const Status& why) {
  qp.state = IBV_QPS_ERR;
  BE_FAILPOINT("softnic.reset.failed");
  if (qp.link == QueuePair::Link::kOpen && qp.published != qp.received) {
    qp.published = qp.received;  // what was received counts; the reset makes the peer look
    qp.path.block->acknowledged.store(qp.received, std::memory_order_release);
  }
  qp.channel->send_reset(qp);
  if (qp.retired) return;
  if (!why.ok()) {
    DeviceEvent event;
    event.kind = DeviceEvent::Kind::kQpFatal;
    event.qp = &qp;
    event.status = why;
    qp.channel->push(std::move(event));
  }
  if (qp.with_srq) {
    DeviceEvent event;
    event.kind = DeviceEvent::Kind::kLastWqeReached;
    event.qp = &qp;
    qp.channel->push(std::move(event));
  }
  qp.send_queue->wake_if_armed();
  qp.recv_queue->wake_if_armed();
}

void break_queue_pair(QueuePair& qp, uint32_t vendor_error, const Status& why) {
  if (qp.core.in_error()) return;
  if (qp.link == QueuePair::Link::kOpen) deliver_remaining(qp);
  if (qp.core.in_error()) return;  // the delivery itself found an error, and has told
  qp.core.fail(vendor_error);
  after_failure(qp, why);
}

}  // namespace be::softnic
