// Who may use how many of the receives that many engines share (an SRQ): blueprint 6, "SRQ mode".
//
//   entries of the SRQ
//   [ reserved: sum of g + r | dealt: credits not spent | owed | free ]
//                             '------- held by engines -------'
//   dealt   an engine's peer may send so many data messages, now or when it is told
//   owed    consumed by its data and not posted again: the buffer was handed up and there is no
//           memory for another. It still counts as held, so a slow application takes from the
//           share of its own peer and of nobody else's
//
//   reserved + sum of max(held, floor) + lost + free == entries
//   so  dealt + reserved <= posted entries           else a peer could find no receive
//
// Each engine always gets its floor. Beyond it, it may hold as much as is then still free
// (Choudhury and Hahne, "Dynamic queue length thresholds for shared-memory packet switches", 1998):
// one busy engine gets half of what all floors leave, n busy ones get each 1/(n+1) of it, so there
// is always something for who becomes busy next. Credits of a peer that has become idle come back
// by its CreditsBack. Memory that comes back goes to who owes least: whose application frees its
// buffers goes on.
//
// Pure: no verbs, no clock. Used on one I/O thread. Never fails, but admit may say no.
#pragma once

#include <cstdint>
#include <vector>

namespace be {

class CreditDealer {
 public:
  using Id = uint32_t;  // of an engine; small, used again
  static constexpr Id kNobody = UINT32_MAX;

  struct Claim {
    uint32_t reserve = 0;  // g + r
    uint32_t floor = 0;    // credits that it always gets, and begins with
    uint32_t most = 0;     // d
  };

  explicit CreditDealer(uint32_t entries) : entries_(entries) {}

  // kNobody: it does not fit now.
  Id admit(const Claim& claim);
  void forget(Id id);  // its queue pair can consume no more

  // Up to `wish` more credits: so many are dealt.
  uint32_t deal(Id id, uint32_t wish);
  void given_back(Id id, uint32_t credits);  // not spent
  void consumed(Id id);                      // one is spent, and owed
  void posted_again(Id id);                  // one that it owed
  Id least_owing() const;                    // who is to get memory; kNobody: the engines gone
  void replaced(Id id);                      // one that it (or nobody) owed, with fresh memory

  uint32_t engines() const { return engines_; }
  uint32_t free() const { return entries_ - reserved_ - held_ - lost_; }
  uint32_t missing() const { return owed_ + lost_; }  // entries that are not posted
  uint32_t dealt() const { return dealt_; }
  uint32_t reserved() const { return reserved_; }
  uint32_t dealt(Id id) const { return accounts_[id].dealt; }
  uint32_t owed(Id id) const { return accounts_[id].owed; }

  const char* broken_invariant() const;  // an equation; null: all hold. Looks at every engine.

 private:
  struct Account {
    Claim claim;
    bool used = false;
    uint32_t dealt = 0;
    uint32_t owed = 0;

    uint32_t held() const { return dealt + owed; }
    uint32_t counted() const { return held() > claim.floor ? held() : claim.floor; }
  };
  // Changes an account, and the sums with it.
  template <typename Change>
  void change(Id id, Change change);

  uint32_t entries_;
  std::vector<Account> accounts_;  // by id
  std::vector<Id> owing_;          // owed > 0
  uint32_t engines_ = 0;
  uint32_t reserved_ = 0;
  uint32_t held_ = 0;  // sum of max(held, floor)
  uint32_t dealt_ = 0;
  uint32_t owed_ = 0;
  uint32_t lost_ = 0;  // owed by engines that are gone
};

}  // namespace be
