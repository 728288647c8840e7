// Posted receives, first in, first out: the receive queue of one QP, or an SRQ of many.
//
// Pure; one thread (an SRQ is used by the QPs of one I/O thread). Posting fails with the errno
// of ibv_post_recv(3): ENOMEM when full, EINVAL for too many SGEs.
#pragma once

#include <infiniband/verbs.h>

#include <bit>
#include <cassert>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <memory>

namespace be::rc {

struct Receive {
  uint64_t wr_id = 0;
  uint32_t num_sge = 0;
  const ibv_sge* sges = nullptr;
};

class ReceiveQueue {
 public:
  ReceiveQueue(uint32_t depth, uint32_t max_sge)
      : depth_(depth),
        mask_(std::bit_ceil(depth) - 1),
        max_sge_(max_sge),
        entries_(new Receive[mask_ + 1]),
        sges_(new ibv_sge[size_t{mask_ + 1} * max_sge]) {}

  uint32_t size() const { return posted_ - taken_; }
  bool empty() const { return posted_ == taken_; }

  int post(const ibv_recv_wr& request) {
    if (request.num_sge < 0 || static_cast<uint32_t>(request.num_sge) > max_sge_) return EINVAL;
    if (size() >= depth_) return ENOMEM;
    const uint32_t place = posted_++ & mask_;
    ibv_sge* sges = &sges_[size_t{place} * max_sge_];
    for (int i = 0; i < request.num_sge; ++i) sges[i] = request.sg_list[i];
    entries_[place] = {request.wr_id, static_cast<uint32_t>(request.num_sge), sges};
    return 0;
  }

  // The oldest receive; stays valid until the next post after take().
  const Receive& front() const {
    assert(!empty());
    return entries_[taken_ & mask_];
  }
  void take() {
    assert(!empty());
    ++taken_;
  }

 private:
  const uint32_t depth_;
  const uint32_t mask_;
  const uint32_t max_sge_;
  std::unique_ptr<Receive[]> entries_;
  std::unique_ptr<ibv_sge[]> sges_;
  uint32_t posted_ = 0;
  uint32_t taken_ = 0;
};

}  // namespace be::rc
