// The result of `byteexpress perf client`, as a table for people and as JSON with everything. Pure.
//
//   latency over softnic (software RNIC), to 127.0.0.1:9000 on host
//   1 thread x 1 socket x 1 outstanding, replies of 32 B, payloads touched
//   fragment 64KiB, window off, send queue 32, receive queue 32
//   median of 3 repetitions of 1s, after 200ms of warm-up each
//
//      bytes  mean us  P50 us ...
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "apps/perf_plan.h"
#include "be/transport/node.h"

namespace be::apps {

std::string perf_table(const PerfPlan& plan, const NodeOptions& options, const PerfResult& result);

// `settings`: all keys in effect, as Config::dump() gives them.
nlohmann::ordered_json perf_json(const PerfPlan& plan, const NodeOptions& options,
                                 const PerfResult& result, const std::string& settings);

}  // namespace be::apps
