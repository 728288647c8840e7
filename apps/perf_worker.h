// PerfWorker: one I/O thread of `byteexpress perf client`: a driven node, hence one engine to the
// server, with its flows.
//
// The public functions block, and are called on thread() only: submit them there. A signal ends
// run() early (what was sent is still waited for) and makes connect() fail.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "apps/end_signals.h"
#include "apps/perf_flow.h"
#include "apps/perf_plan.h"
#include "be/base/executor.h"

namespace be::apps {

class PerfControl;

class PerfWorker {
 public:
  // What the flows of one worker did in one run.
  struct Run {
    Time begin{};
    Time end{};  // last reply
    uint64_t answered = 0;
    uint64_t background_answered = 0;
    Histogram times_ns;
  };

  static Result<std::unique_ptr<PerfWorker>> create(const NodeOptions& options, size_t index,
                                                    const PerfPlan& plan, EndSignals& signals);
  ~PerfWorker();
  PerfWorker(const PerfWorker&) = delete;
  PerfWorker& operator=(const PerfWorker&) = delete;

  WorkerPool& thread() { return *thread_; }

  // The control socket makes the session that the flows of all workers join.
  Status open_session(const Address& server, uint64_t session);
  Status connect(const Address& server, uint64_t session);
  Result<Run> run(uint32_t message_bytes, Nanoseconds duration);
  Result<PerfReport> ask_report();  // requires open_session()

  Node& node() { return *node_; }
  TransportKind transport() const;  // of the control socket
  std::string device() const;

 private:
  PerfWorker(const PerfPlan& plan, EndSignals& signals);

  enum class Interruptible : uint8_t { kNo, kYes };
  // False: `patience` is over, or a signal came.
  bool drive(const std::function<bool()>& done, Nanoseconds patience, Interruptible interruptible);
  Status first_failure() const;
  bool all(bool (PerfFlow::*is)() const) const;

  const PerfPlan& plan_;
  EndSignals& signals_;
  bool failed_ = false;  // one of the flows
  std::unique_ptr<PerfControl> control_;
  std::vector<std::unique_ptr<PerfFlow>> flows_;
  std::vector<std::unique_ptr<PerfFlow>> background_;
  std::unique_ptr<Node> node_;  // ends before those that it calls
  std::unique_ptr<WorkerPool> thread_;
};

}  // namespace be::apps
