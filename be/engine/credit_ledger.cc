#include "be/engine/credit_ledger.h"

#include <cassert>

namespace be {

void CreditLedger::spend(uint32_t count) {
  assert(available() >= count);
  spent_ += count;
}

bool CreditLedger::accept(uint32_t granted_total) {
  const uint32_t returned = granted_total - granted_;
  if (returned > peer_depth_ || granted_total - spent_ > peer_depth_) return false;
  granted_ = granted_total;
  return true;
}

}  // namespace be
