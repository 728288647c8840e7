// The receiver's half of credits: which receives are posted, consumed, owed.
//
//   depth = d + g + r                      interchangeable receives (blueprint 6)
//   posted - consumed + to_repost + deficit == depth
//     to_repost   consumed by control frames and immediates: their buffer is posted again
//     deficit     consumed by data and not replaced: the buffer was handed up
//   told = d + all returned credits        data SENDs that the peer may have posted at all
//   data_consumed <= told                  else the peer spent credits that it does not have
//   unreturned = d + replaced - told       replaced, and the peer does not know yet
//
// Credits return k = ceil(d/2) at a time. A smaller return is made only when the peer is low: down
// to what only replies may spend (we could not replace all: memory). The peer keeps two receives
// for returns. One has surely been taken once the peer has spent a credit that it did not know
// before that return; until then it counts as untaken, and
//   untaken returns <= 2
//   the last two returns together give more than the share of replies, if the first is untaken
// so a peer that is low has taken all but the last, and what is replaced can be returned. (With
// nothing but returns of k the rules never make one wait.)
//
// On an SRQ the receives are not its own: it has a claim to `posted` of those that all share
// (credit_dealer.h), and "replaced" means dealt. It begins as if d - initial had been consumed and
// not replaced, and the peer with `initial` credits. The peer is low at the share of replies in
// those, k is half of what the peer had after the last return, and an idle peer gives credits back:
// they are consumed without a message.
//
// Indices count receives, modulo 2^31: the part of wr_id that is theirs. A queue pair consumes
// its receives in the order posted; those of an SRQ have no order.
//
// Pure; owned by one Engine, used on its I/O thread only. Never fails: an index out of order or
// data beyond the credits is refused, and the engine closes. Paper 5.4.2.
#pragma once

#include <cstdint>

namespace be {

class ReceiveRing {
 public:
  static constexpr uint32_t kIndexMask = 0x7fffffff;

  // d: data receives; `reserve`: g + r. Requires d >= 2.
  ReceiveRing(uint32_t data_depth, uint32_t reserve);
  // On an SRQ; the peer begins with `initial` of d credits. Requires 2 <= initial <= d.
  static ReceiveRing shared(uint32_t data_depth, uint32_t reserve, uint32_t initial);

  uint32_t depth() const { return data_depth_ + reserve_; }
  uint32_t posted() const { return posted_ - consumed_; }  // and not consumed
  uint32_t slots() const { return mask_ + 1; }             // depth, rounded to a power of two
  uint32_t slot_of(uint32_t index) const { return index & mask_; }

  // The index of the next receive to post; post() counts it. Requires posted() < depth().
  uint32_t next_index() const { return posted_ & kIndexMask; }
  void post_first();  // at set-up, until complete()
  bool complete() const { return posted() + deficit_ == depth(); }
  void post_again();     // one of to_repost
  void post_replaced();  // one of the deficit

  // A receive has completed. False: not the oldest posted one.
  [[nodiscard]] bool consume(uint32_t index);
  [[nodiscard]] bool consume_shared();  // False: none is posted
  void consumed_by_control() { ++to_repost_; }
  // False: the peer had no credit for it.
  [[nodiscard]] bool consumed_by_data();
  // The peer gives so many credits back. False: it has not got them.
  [[nodiscard]] bool give_back(uint32_t credits);

  uint32_t to_repost() const { return to_repost_; }
  uint32_t deficit() const { return deficit_; }
  uint32_t data_posted() const { return data_depth_ - deficit_; }
  // Replacing is done k at a time, but at once when the peer may be stuck.
  bool replacement_due() const {
    return deficit_ > 0 && (data_posted() + batch() <= level_ || peer_low());
  }

  bool return_due() const;  // a credit return is to be sent now
  uint32_t take_return();   // requires return_due(): the new total for its frame

  uint32_t told() const { return told_; }

 private:
  uint32_t peer_credits() const { return told_ - data_consumed_; }
  bool peer_low() const { return peer_credits() <= reply_share_; }
  uint32_t batch() const { return (level_ + 1) / 2; }  // k

  ReceiveRing(uint32_t data_depth, uint32_t reserve, uint32_t initial, bool shared);

  const uint32_t data_depth_;
  const uint32_t reserve_;
  const uint32_t mask_;
  const uint32_t reply_share_;
  const bool shared_;
  uint32_t level_;  // what the peer has when all is returned: d; shared: after the last return
  uint32_t posted_ = 0;
  uint32_t consumed_ = 0;
  uint32_t to_repost_ = 0;
  uint32_t deficit_;
  uint32_t data_consumed_;
  uint32_t replaced_ = 0;
  uint32_t told_;
  // What the peer knew before the last return and before the one before it.
  uint32_t told_before_last_;
  uint32_t told_before_second_last_;
  uint32_t returns_ = 0;  // 0, 1, 2: how many of the two above mean something
};

}  // namespace be
