// What a worker process does: one measurement, asked for and answered in JSON.
//
//   job                asks                                  answers
//   cell               workload, threads, loops, allocator   rate and peaks: cell_job.cc
//   lookup                                                   price of region(): lookup_job.cc
//   producer_consumer  workload, seconds, same_thread        rate, registered bytes over time
//   inference_server, inference_ranker                       lines until they end:
//                                                            inference_roles.cc
//
// Every job runs in a fresh process (worker_process.h), so that peaks are its own and no heap is
// inherited. A job of an unknown name, or without a field that it needs, is a Status.
#pragma once

#include <nlohmann/json.hpp>

#include "be/base/status.h"
#include "bench/bench_allocator/workload.h"

namespace be::bench {

Result<nlohmann::json> do_job(const nlohmann::json& job);

// Of one kind each.
Result<nlohmann::json> do_cell(const nlohmann::json& job);
Result<nlohmann::json> do_lookup();
Result<nlohmann::json> do_producer_consumer(const nlohmann::json& job);
Result<nlohmann::json> do_inference_server(const nlohmann::json& job);
Result<nlohmann::json> do_inference_ranker(const nlohmann::json& job);

// Field "workload": "LARGE" or "SMALL". Field "allocator": a name of subject.h.
Workload workload_of(const nlohmann::json& job);

}  // namespace be::bench
