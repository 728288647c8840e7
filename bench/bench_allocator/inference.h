// Figure 5: registered memory of the nodes of an inference service over time.
//
//   N parameter servers + 1 ranker, each a process of this host, connected over softnic.
//   A request evaluates three models: as many concurrent fetches, each from all servers at once.
//   Requests come at random moments and are of random size (inference_roles.cc).
//
// Every process tells once a second what it has registered. One thread. A process that dies ends
// the run with a Status that names it.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "be/base/status.h"
#include "bench/bench_allocator/bars.h"

namespace be::bench {

struct InferencePlan {
  double seconds = 600;
  uint32_t servers = 4;
  double requests_per_second = 200;
};

struct MemorySample {
  double second = 0;  // since the start
  double registered_bytes = 0;
  double live_bytes = 0;
  uint64_t registrations = 0;  // so far
  uint64_t deregistrations = 0;
};

struct InferenceNode {
  std::string name;  // "ranker", "server 0"
  std::vector<MemorySample> samples;
};

struct InferenceRun {
  std::vector<InferenceNode> nodes;  // the ranker first
  nlohmann::json service;            // what the ranker has served, and how fast
};

Result<InferenceRun> run_inference(const InferencePlan& plan);

// No registration in the last half, and registered bytes the same all through it.
std::vector<Bar> bars_of_inference(const InferenceRun& run);

nlohmann::json to_json(const InferenceRun& run);

Status draw_figure5(const std::string& path, const InferenceRun& run,
                    const std::vector<std::string>& notes);

}  // namespace be::bench
