// The run of `byteexpress perf client`: repetitions of a sweep over sizes, each with a warm-up and
// with CPU times taken at both ends.
//
//   for each repetition, for each size:   warm up | CPU | measure on all threads | CPU
//
// Repetitions are the outer loop, so that a disturbance of the machine does not meet all of one
// size. After each measurement the server's counts must be ours, else kDataLoss.
#pragma once

#include <functional>
#include <string>

#include "apps/end_signals.h"
#include "apps/perf_plan.h"
#include "be/transport/node.h"

namespace be::apps {

// options.io_threads workers, each with a node (and so an engine) of its own. `progress` is told
// which part of the whole is done, and of what is next. Blocks.
Result<PerfResult> run_perf_client(const NodeOptions& options, const PerfPlan& plan,
                                   EndSignals& signals,
                                   const std::function<void(double, const std::string&)>& progress);

}  // namespace be::apps
