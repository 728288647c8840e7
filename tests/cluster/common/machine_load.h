// How much time the machine, busy with others, has kept from a thread of ours: what a test of a
// time bound must forgive.
#pragma once

#include <atomic>
#include <chrono>
#include <thread>

#include "be/base/time.h"

namespace be::cluster {

// A thread that sleeps in short naps; by how much they are too long is time that was kept from it.
class MachineLoad {
 public:
  MachineLoad() : thread_([this] { nap(); }) {}
  ~MachineLoad() {
    ended_ = true;
    thread_.join();
  }

  // Since construction; compare two readings.
  Nanoseconds kept_from_us() const { return Nanoseconds(kept_ns_.load()); }

 private:
  void nap() {
    constexpr Nanoseconds kNap = 5ms;
    while (!ended_) {
      const auto start = std::chrono::steady_clock::now();
      std::this_thread::sleep_for(kNap);
      const Nanoseconds took = std::chrono::steady_clock::now() - start;
      kept_ns_ += (took - kNap).count();
    }
  }

  std::atomic<int64_t> kept_ns_{0};
  std::atomic<bool> ended_{false};
  std::thread thread_;
};

}  // namespace be::cluster
