// A process made of this very test program, that runs a function and talks to us in numbers.
//
// Forked, so there must be no node and no thread when it is made. It never outlives us: the kernel
// kills it when we end, and the destructor kills it and waits.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <optional>

#include "be/base/time.h"
#include "be/base/unique_fd.h"

namespace be::cluster {

// One end of the conversation.
class Wire {
 public:
  explicit Wire(UniqueFd fd) : fd_(std::move(fd)) {}
  bool say(uint64_t value) const;
  // Nothing: the other end is gone, or silent for so long.
  std::optional<uint64_t> hear(Nanoseconds patience = 60s) const;

 private:
  UniqueFd fd_;
};

class ForkedChild {
 public:
  explicit ForkedChild(const std::function<void(Wire& parent)>& body);
  ~ForkedChild();
  ForkedChild(const ForkedChild&) = delete;
  ForkedChild& operator=(const ForkedChild&) = delete;

  pid_t pid() const { return pid_; }
  Wire& wire() { return wire_; }

 private:
  pid_t pid_ = -1;
  Wire wire_{UniqueFd()};
};

// User and system time of a living process so far.
Nanoseconds cpu_time_of(pid_t pid);

}  // namespace be::cluster
