// StreamFd: a descriptor of the world's StreamNetwork, closed when its owner is gone.
#pragma once

#include <utility>

#include "be/base/world.h"

namespace be {

class StreamFd {
 public:
  StreamFd(World& world, int fd) : world_(&world), fd_(fd) {}
  StreamFd(StreamFd&& other) noexcept : world_(other.world_), fd_(std::exchange(other.fd_, -1)) {}
  StreamFd& operator=(StreamFd&&) = delete;
  ~StreamFd() {
    if (fd_ >= 0) world_->network().close(fd_);
  }

  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }

 private:
  World* world_;
  int fd_;
};

}  // namespace be
