#include "bench/bench_allocator/jobs.h"

#include <string>

namespace be::bench {

Workload workload_of(const nlohmann::json& job) {
  return job.at("workload") == "LARGE" ? large_workload() : small_workload();
}

Result<nlohmann::json> do_job(const nlohmann::json& job) {
  try {
    const std::string name = job.at("job");
    if (name == "cell") return do_cell(job);
    if (name == "lookup") return do_lookup();
    if (name == "producer_consumer") return do_producer_consumer(job);
    if (name == "inference_server") return do_inference_server(job);
    if (name == "inference_ranker") return do_inference_ranker(job);
    return error(Code::kInvalidArgument, "no job is called {}", name);
  } catch (const nlohmann::json::exception& exception) {
    return error(Code::kInvalidArgument, "{}: {}", job.dump(), exception.what());
  }
}

}  // namespace be::bench
