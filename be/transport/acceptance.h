// Acceptance: a listener's Acceptor, shared by all that was accepted on its behalf.
//
// Once stop() has returned, the acceptor is not running and will not be called again: what it
// refers to may die. Any thread; stop() must not be called from within the acceptor.
#pragma once

#include <mutex>
#include <shared_mutex>
#include <utility>

#include "be/transport/node.h"

namespace be {

class Acceptance {
 public:
  explicit Acceptance(Acceptor acceptor) : acceptor_(std::move(acceptor)) {}

  // Null: refused.
  SocketHandler* decide(Socket& socket) {
    const std::shared_lock lock(mutex_);
    return acceptor_ ? acceptor_(socket) : nullptr;
  }

  bool stopped() const {
    const std::shared_lock lock(mutex_);
    return acceptor_ == nullptr;
  }

  void stop() {
    const std::unique_lock lock(mutex_);
    acceptor_ = nullptr;
  }

 private:
  mutable std::shared_mutex mutex_;
  Acceptor acceptor_;  // guarded by mutex_; empty: stopped
};

}  // namespace be
