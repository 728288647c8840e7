#include "be/engine/receive_ring.h"

#include <bit>
#include <cassert>

#include "be/engine/frame_kind.h"

namespace be {

ReceiveRing::ReceiveRing(uint32_t data_depth, uint32_t reserve)
    : ReceiveRing(data_depth, reserve, data_depth, false) {}

ReceiveRing ReceiveRing::shared(uint32_t data_depth, uint32_t reserve, uint32_t initial) {
  return {data_depth, reserve, initial, true};
}

ReceiveRing::ReceiveRing(uint32_t data_depth, uint32_t reserve, uint32_t initial, bool shared)
    : data_depth_(data_depth),
      reserve_(reserve),
      mask_(std::bit_ceil(data_depth + reserve) - 1),
      reply_share_(reply_share(initial)),
      shared_(shared),
      level_(initial),
      deficit_(data_depth - initial),
      data_consumed_(data_depth - initial),
      told_(data_depth),
      told_before_last_(data_depth),
      told_before_second_last_(data_depth) {
  assert(initial >= 2 && initial <= data_depth);
}

void ReceiveRing::post_first() {
  assert(posted() < depth());
  ++posted_;
}

void ReceiveRing::post_again() {
  assert(to_repost_ > 0);
  --to_repost_;
  ++posted_;
}

void ReceiveRing::post_replaced() {
  assert(deficit_ > 0);
  --deficit_;
  ++replaced_;
  ++posted_;
}

bool ReceiveRing::consume(uint32_t index) {
  if (posted() == 0 || index != (consumed_ & kIndexMask)) return false;
  ++consumed_;
  return true;
}

bool ReceiveRing::consume_shared() {
  if (posted() == 0) return false;
  ++consumed_;
  return true;
}

bool ReceiveRing::consumed_by_data() {
  ++deficit_;
  if (peer_credits() == 0) return false;
  ++data_consumed_;
  return true;
}

bool ReceiveRing::give_back(uint32_t credits) {
  if (credits > peer_credits()) return false;
  consumed_ += credits;
  data_consumed_ += credits;
  deficit_ += credits;
  level_ = peer_credits();
  return true;
}

bool ReceiveRing::return_due() const {
  const uint32_t unreturned = data_depth_ + replaced_ - told_;
  if (unreturned == 0 || (unreturned < batch() && !peer_low())) return false;
  // Spent beyond what it knew before a return: it has taken that return.
  const auto untaken = [this](uint32_t told_before) {
    return static_cast<int32_t>(data_consumed_ - told_before) <= 0;
  };
  if (returns_ >= 2 && untaken(told_before_second_last_)) return false;
  if (returns_ >= 1 && untaken(told_before_last_)) {
    // The last receive that the peer keeps. Together with the return before it must give more
    // than the share of replies: then a peer that is low again has spent into the first one.
    return told_ + unreturned - told_before_last_ > reply_share_;
  }
  return true;
}

uint32_t ReceiveRing::take_return() {
  assert(return_due());
  told_before_second_last_ = told_before_last_;
  told_before_last_ = told_;
  told_ = data_depth_ + replaced_;
  if (returns_ < 2) ++returns_;
  if (shared_) level_ = peer_credits();
  return told_;
}

}  // namespace be
