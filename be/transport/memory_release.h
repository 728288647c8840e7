// Gives registered memory that a node has not needed for a while back to the system.
//
// Every `interval` a timer on an I/O thread looks whether the pool has more than it should keep; if
// so, a worker of its own deregisters and releases it (RegisteredPool::release_unused), which may
// take milliseconds. The worker is started when there is something to do for the first time: most
// processes never are above memory.kept_bytes.
//
// Owned by a NodeImpl: made before its I/O threads start, destroyed after they have ended, before
// the pool; its destructor waits for a release that is under way.
#pragma once

#include <atomic>
#include <memory>

#include "be/base/world.h"
#include "be/memory/registered_pool.h"
#include "be/transport/io_thread.h"

namespace be {

class MemoryRelease {
 public:
  MemoryRelease(World& world, RegisteredPool& pool, Nanoseconds interval)
      : world_(world), pool_(pool), interval_(interval) {}

  void start(IoThread& thread);

 private:
  void tick(IoThread& thread);  // on `thread`
  void release();

  World& world_;
  RegisteredPool& pool_;
  const Nanoseconds interval_;
  std::atomic<bool> under_way_ = false;
  std::unique_ptr<WorkerPool> worker_;
};

}  // namespace be
