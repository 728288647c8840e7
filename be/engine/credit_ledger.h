// Receive credits: how many data SENDs the peer can still take.
//
//   granted   data receives the peer has told us of, since the connection began
//   spent     data receives we have consumed by posting, since the connection began
//   spent <= granted                  else the peer would answer RNR
//   granted - spent <= peer_depth     else the peer's accounting is broken
//
// Both only grow and are compared by subtraction, so wrap-around is harmless. Credit returns and
// all that a large message needs are SENDs into the peer's reserve, and each open grant owns a
// receive: none needs a credit, so two peers out of credit can never wait for each other. The last
// quarter is for replies alone: requests that nobody consumes can never stop them.
//
// A peer whose receives are shared grants `initial` of its depth at first and more by demand: as
// if depth - initial had been spent and not returned. The quarter is that of `initial`, and who
// has been idle gives back what is above it.
//
// Pure: no verbs, no clock. Owned by one Engine, used on its I/O thread only. Never fails: a
// total that breaks the second rule is refused by `accept`, and the engine closes. Paper 5.4.2.
#pragma once

#include <cstdint>

#include "be/engine/frame_kind.h"

namespace be {

class CreditLedger {
 public:
  // Requires 2 <= initial <= peer_depth: one for either class.
  CreditLedger(uint32_t peer_depth, uint32_t initial)
      : granted_(peer_depth),
        spent_(peer_depth - initial),
        peer_depth_(peer_depth),
        initial_(initial) {}
  explicit CreditLedger(uint32_t peer_depth) : CreditLedger(peer_depth, peer_depth) {}

  uint32_t available() const { return granted_ - spent_; }
  uint32_t spent() const { return spent_; }
  bool may_spend(MessageClass klass) const { return may_take(klass, available(), initial_); }
  void spend(uint32_t count = 1);                     // requires available() >= count
  [[nodiscard]] bool accept(uint32_t granted_total);  // false: impossible total, close
  // Credits above `initial`, but for the one that giving them back spends.
  uint32_t surplus() const { return available() > initial_ ? available() - initial_ - 1 : 0; }

 private:
  uint32_t granted_;
  uint32_t spent_;
  uint32_t peer_depth_;
  uint32_t initial_;
};

}  // namespace be
