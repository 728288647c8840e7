// Executor over kernel threads (see executor.h).
//
// Signals stay with the application's own threads: ours block all but those that a fault raises.
// In a forked child (fork.h) loops and workers are not there: joining returns at once, tasks that
// are submitted are forgotten.
#pragma once

#include "be/base/executor.h"

namespace be {

class KernelExecutor final : public Executor {
 public:
  explicit KernelExecutor(const Clock& clock) : clock_(clock) {}

  Result<std::unique_ptr<Loop>> start_loop(const std::string& name, Poller& poller,
                                           std::function<bool()> step) override;
  Result<std::unique_ptr<WorkerPool>> start_workers(const std::string& name, int threads) override;
  std::unique_ptr<Gate> make_gate() override;

 private:
  const Clock& clock_;
};

}  // namespace be
