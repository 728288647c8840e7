#include "be/transport/memory_release.h"

#include "be/base/log.h"

namespace be {

void MemoryRelease::start(IoThread& thread) {
  thread.timers().schedule(world_.now() + interval_, [this, &thread] { tick(thread); });
}

void MemoryRelease::tick(IoThread& thread) {
  thread.timers().schedule(thread.now() + interval_, [this, &thread] { tick(thread); });
  if (pool_.has_surplus() && !under_way_.exchange(true)) release();
}

void MemoryRelease::release() {
  if (worker_ == nullptr) {
    auto worker = world_.executor().start_workers("be_memory", 1);
    if (!worker.ok()) {
      log_warn("unused memory stays registered: {}", worker.status().to_string());
      under_way_ = false;
      return;
    }
    worker_ = *std::move(worker);
  }
  worker_->submit([this] {
    pool_.release_unused();
    under_way_ = false;
  });
}

}  // namespace be
