#include "be/sim/trace.h"

#include <fmt/format.h>

#include <algorithm>

#include "be/base/hash.h"

namespace be::sim {

const char* happening_name(Happening what) {
  static constexpr const char* kNames[] = {"step", "task",     "post",       "depart", "arrive",
                                           "ack",  "complete", "queue pair", "stream", "deliver",
                                           "sent", "closed",   "answer",     "fault"};
  return kNames[static_cast<size_t>(what)];
}

void Trace::note(Time when, Happening what, uint32_t host, uint64_t a, uint64_t b) {
  const auto nanoseconds = static_cast<uint64_t>(when.time_since_epoch().count());
  hash_ = mix64(hash_,
                mix64(nanoseconds, mix64(static_cast<uint64_t>(what) << 32 | host, mix64(a, b))));
  if (what >= Happening::kDeliver && what <= Happening::kAnswer) ++progress_;
  entries_[count_++ % kKept] = {when, what, host, a, b};
}

std::vector<std::string> Trace::last() const {
  std::vector<std::string> lines;
  const uint64_t first = count_ - std::min<uint64_t>(count_, kKept);
  for (uint64_t i = first; i < count_; ++i) {
    const Entry& entry = entries_[i % kKept];
    lines.push_back(fmt::format("{:>14} ns  host {}  {:<10} {} {:#x}",
                                entry.when.time_since_epoch().count(), entry.host,
                                happening_name(entry.what), entry.a, entry.b));
  }
  return lines;
}

}  // namespace be::sim
