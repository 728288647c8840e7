// SIGTERM and SIGINT as something to ask for: blocked from construction on, in this thread and in
// every thread that is started after it.
//
// One per process, made before any thread.
#pragma once

#include <atomic>
#include <cerrno>
#include <csignal>
#include <ctime>

namespace be::apps {

class EndSignals {
 public:
  EndSignals() {
    sigemptyset(&signals_);
    sigaddset(&signals_, SIGTERM);
    sigaddset(&signals_, SIGINT);
    pthread_sigmask(SIG_BLOCK, &signals_, nullptr);
  }

  void wait() const {
    int signal = 0;
    while (sigwait(&signals_, &signal) == EINTR) {
    }
  }

  // Whether one has come; a system call, any thread.
  bool arrived() {
    const timespec at_once{};
    if (sigtimedwait(&signals_, nullptr, &at_once) > 0) arrived_ = true;
    return arrived_;
  }

 private:
  sigset_t signals_;
  std::atomic<bool> arrived_ = false;
};

}  // namespace be::apps
