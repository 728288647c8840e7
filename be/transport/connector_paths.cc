#include "be/transport/connector_paths.h"

#include <algorithm>

#include "be/base/log.h"

namespace be {
namespace {

constexpr uint32_t kSuspected = 2;

int64_t seconds(Nanoseconds time) {
  return std::chrono::duration_cast<std::chrono::seconds>(time).count();
}

}  // namespace

void DeadPaths::engine_ended(const Address& remote, size_t device, bool heard, Time now) {
  if (heard) {
    paths_.erase({remote, device});
    return;
  }
  Path& path = paths_[{remote, device}];
  if (++path.unheard < kSuspected) return;
  Nanoseconds pause = kFirst;
  for (uint32_t i = kSuspected; i < path.unheard && pause < kLongest; ++i) pause *= 2;
  pause = std::min(pause, kLongest);
  path.until = saturating_add(now, pause);
  log_warn(
      "{} engines in a row to {} have ended without a word from there: for {} s new connections go "
      "over TCP, unless RDMA is asked for by name (does a firewall drop UDP port 4791, do routes "
      "and "
      "GIDs lead there?)",
      path.unheard, remote.to_string(), seconds(pause));
}

Status DeadPaths::check(const Address& remote, size_t device, Time now) const {
  const auto path = paths_.find({remote, device});
  if (path == paths_.end() || now >= path->second.until) return {};
  return error(Code::kUnavailable,
               "the last {} engines ended without a word from there, the next try is in {} s",
               path->second.unheard, seconds(path->second.until - now) + 1);
}

}  // namespace be
