// The injected world: the only way in which code outside base/ reaches time, threads,
// randomness, descriptors and the network (blueprint 3).
//
// Production uses kernel_world(); the simulator makes one World per seed. Shared by all
// threads of a process; every member may be called from any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "be/base/executor.h"
#include "be/base/poller.h"
#include "be/base/stream_network.h"
#include "be/base/time.h"

namespace be {

class World {
 public:
  virtual ~World() = default;

  virtual Clock& clock() = 0;
  virtual Executor& executor() = 0;
  virtual StreamNetwork& network() = 0;
  virtual Result<std::unique_ptr<Poller>> make_poller() = 0;

  // Unpredictable bytes in the kernel world (nonces, tokens, PSNs), seeded ones in a simulation.
  virtual void random_bytes(std::span<uint8_t> out) = 0;

  Time now() { return clock().now(); }
  uint64_t random_u64();
};

World& kernel_world();  // one per process, never destroyed

}  // namespace be
