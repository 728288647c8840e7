// The World of production: kernel clock, threads, sockets and entropy.
#include <sys/random.h>
#include <time.h>

#include <cerrno>
#include <cstdlib>

#include "be/base/kernel_executor.h"
#include "be/base/kernel_network.h"
#include "be/base/kernel_poller.h"
#include "be/base/log.h"
#include "be/base/world.h"

namespace be {
namespace {

class KernelClock final : public Clock {
 public:
  Time now() const override {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);  // cannot fail; no system call (vdso)
    return Time(std::chrono::seconds(now.tv_sec) + Nanoseconds(now.tv_nsec));
  }
};

class KernelWorld final : public World {
 public:
  Clock& clock() override { return clock_; }
  Executor& executor() override { return executor_; }
  StreamNetwork& network() override { return network_; }
  Result<std::unique_ptr<Poller>> make_poller() override { return KernelPoller::create(clock_); }
  void random_bytes(std::span<uint8_t> out) override;

 private:
  KernelClock clock_;
  KernelExecutor executor_{clock_};
  KernelNetwork network_;
};

void KernelWorld::random_bytes(std::span<uint8_t> out) {
  while (!out.empty()) {
    const ssize_t bytes = getrandom(out.data(), out.size(), 0);
    if (bytes > 0) {
      out = out.subspan(static_cast<size_t>(bytes));
    } else if (errno != EINTR) {
      // A kernel without entropy: tokens and nonces would be guessable.
      log_error("{}", error_from_errno(errno, "getrandom").message());
      std::abort();
    }
  }
}

}  // namespace

World& kernel_world() {
  static KernelWorld* const kWorld = new KernelWorld();
  return *kWorld;
}

// No forked child may find that another thread was just making it.
[[maybe_unused]] static const World& kBeforeForks = kernel_world();

uint64_t World::random_u64() {
  uint64_t value = 0;
  random_bytes({reinterpret_cast<uint8_t*>(&value), sizeof(value)});
  return value;
}

}  // namespace be
