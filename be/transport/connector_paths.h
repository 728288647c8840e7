// DeadPaths: addresses to which engines are set up well, but nothing ever comes back through them:
// a firewall that takes UDP 4791, a route or GID that leads elsewhere.
//
//   An engine that received something                 -> the path is alive, all is forgotten
//   two engines in a row that ended without a word    -> dead for kFirst
//   one more, when that time is over                  -> dead for twice as long, at most kLongest
//
// While it is dead, who leaves the choice to us (`auto`) is served over TCP. Two in a row: a peer
// may die just after set-up, but hardly twice. What opened over TCP stays there until it is closed.
//
// Pure: it is told the time. As many entries as there are bad addresses. Used on one I/O thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>

#include "be/base/status.h"
#include "be/base/stream_network.h"
#include "be/base/time.h"

namespace be {

class DeadPaths {
 public:
  static constexpr Nanoseconds kFirst = 5s;
  static constexpr Nanoseconds kLongest = 320s;

  // An engine to `remote` over our device number `device` has ended.
  void engine_ended(const Address& remote, size_t device, bool heard, Time now);
  // ok: worth a try.
  Status check(const Address& remote, size_t device, Time now) const;

 private:
  struct Path {
    uint32_t unheard = 0;  // engines in a row
    Time until{};
  };
  std::map<std::pair<Address, size_t>, Path> paths_;
};

}  // namespace be
