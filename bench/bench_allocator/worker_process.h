// One job (jobs.h) in a fresh process of this same program.
//
//   /usr/bin/env ENVIRONMENT... WRAPPER... bench_allocator --worker JOB   ->   one line of JSON
//
// So a peer allocator is preloaded into the worker only, and nothing that was allocated here is
// inherited there. The worker dies with us. One that fails is a Status with its last words; one in
// which malloc is not the preloaded library's is refused (the loader only warns of that).
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "be/base/status.h"

namespace be::bench {

struct WorkerPlan {
  std::vector<std::string> environment;  // "LD_PRELOAD=/usr/lib/libx.so"
  std::vector<std::string> wrapper;      // "valgrind", "--tool=callgrind"
};

struct WorkerAnswer {
  nlohmann::json result;
  std::string errors;  // the end of its standard error
};

Result<WorkerAnswer> run_worker(const nlohmann::json& job, const WorkerPlan& plan);

// In the worker: does the job and prints the answer. The process's exit code.
int be_worker(const std::string& job);

}  // namespace be::bench
