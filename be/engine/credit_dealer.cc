#include "be/engine/credit_dealer.h"

#include <algorithm>
#include <cassert>

namespace be {

template <typename Change>
void CreditDealer::change(Id id, Change change) {
  Account& account = accounts_[id];
  assert(account.used);
  const bool owed_before = account.owed > 0;
  dealt_ -= account.dealt;
  owed_ -= account.owed;
  held_ -= account.counted();
  change(account);
  dealt_ += account.dealt;
  owed_ += account.owed;
  held_ += account.counted();
  if (!owed_before && account.owed > 0) owing_.push_back(id);
  if (owed_before && account.owed == 0) std::erase(owing_, id);
}

CreditDealer::Id CreditDealer::admit(const Claim& claim) {
  if (claim.reserve + claim.floor > free()) return kNobody;
  const auto place = std::find_if(accounts_.begin(), accounts_.end(),
                                  [](const Account& account) { return !account.used; });
  const Id id = static_cast<Id>(place - accounts_.begin());
  const Account account{.claim = claim, .used = true, .dealt = claim.floor, .owed = 0};
  if (place == accounts_.end()) {
    accounts_.push_back(account);
  } else {
    *place = account;
  }
  ++engines_;
  reserved_ += claim.reserve;
  dealt_ += account.dealt;
  held_ += account.counted();
  return id;
}

void CreditDealer::forget(Id id) {
  Account& account = accounts_[id];
  assert(account.used);
  --engines_;
  reserved_ -= account.claim.reserve;
  dealt_ -= account.dealt;
  held_ -= account.counted();
  owed_ -= account.owed;
  lost_ += account.owed;
  if (account.owed > 0) std::erase(owing_, id);
  account = Account{};
}

uint32_t CreditDealer::deal(Id id, uint32_t wish) {
  const Account& account = accounts_[id];
  const uint32_t held = account.held();
  const uint32_t floor = account.claim.floor;
  // Up to the floor nothing is taken from what is free; above it, what it then holds beyond the
  // floor is at most what is free then.
  const uint32_t to_floor = held < floor ? floor - held : 0;
  const uint32_t beyond = held > floor ? held - floor : 0;
  const uint32_t fair = free() > beyond ? (free() - beyond) / 2 : 0;
  const uint32_t room = account.claim.most - std::min(account.dealt, account.claim.most);
  const uint32_t count = std::min({wish, to_floor + fair, room});
  change(id, [count](Account& to) { to.dealt += count; });
  return count;
}

void CreditDealer::given_back(Id id, uint32_t credits) {
  assert(credits <= accounts_[id].dealt);
  change(id, [credits](Account& from) { from.dealt -= credits; });
}

void CreditDealer::consumed(Id id) {
  assert(accounts_[id].dealt > 0);
  change(id, [](Account& by) {
    --by.dealt;
    ++by.owed;
  });
}

void CreditDealer::posted_again(Id id) {
  assert(accounts_[id].owed > 0);
  change(id, [](Account& by) { --by.owed; });
}

CreditDealer::Id CreditDealer::least_owing() const {
  const auto least = std::min_element(owing_.begin(), owing_.end(), [this](Id a, Id b) {
    return accounts_[a].owed < accounts_[b].owed;
  });
  return least == owing_.end() ? kNobody : *least;
}

void CreditDealer::replaced(Id id) {
  if (id != kNobody) return posted_again(id);
  assert(lost_ > 0);
  --lost_;
}

const char* CreditDealer::broken_invariant() const {
  CreditDealer sums(entries_);
  for (const Account& account : accounts_) {
    if (!account.used) continue;
    ++sums.engines_;
    sums.reserved_ += account.claim.reserve;
    sums.dealt_ += account.dealt;
    sums.owed_ += account.owed;
    sums.held_ += account.counted();
    if (account.dealt > account.claim.most) return "credits dealt to an engine <= d";
  }
  if (sums.engines_ != engines_ || sums.reserved_ != reserved_ || sums.dealt_ != dealt_ ||
      sums.owed_ != owed_ || sums.held_ != held_) {
    return "the dealer's sums == those of its accounts";
  }
  if (uint64_t{reserved_} + held_ + lost_ > entries_) {
    return "reserved + held + lost <= entries of the SRQ";
  }
  if (uint64_t{dealt_} + reserved_ + missing() > entries_) {
    return "credits dealt + sum of (g + r) <= posted entries of the SRQ";
  }
  return nullptr;
}

}  // namespace be
