// What `byteexpress perf client` is asked to do, and what came of it. Plain values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "apps/perf_figures.h"
#include "apps/perf_protocol.h"
#include "be/engine/engine_options.h"

namespace be::apps {

struct PerfPlan {
  std::string server;  // HOST:PORT
  PerfTest test = PerfTest::kLatency;
  std::vector<uint32_t> sizes;
  uint32_t sockets = 1;      // of each thread, over one engine
  uint32_t outstanding = 1;  // messages without a reply, of each socket
  uint32_t background = 0;   // large flows beside, over the same engine
  uint32_t background_bytes = 1u << 20;
  Nanoseconds duration = 1s;   // of one size in one repetition
  Nanoseconds warmup = 200ms;  // before each
  uint32_t repetitions = 3;
  uint32_t reply_bytes = 32;
  bool touch = true;
};

struct PerfResult {
  struct Size {
    uint32_t bytes = 0;
    std::vector<PerfFigures> repetitions;
  };
  PerfReport server;  // as it was at the end
  TransportKind transport = TransportKind::kTcp;
  std::string device;                  // device_label() of our end
  std::string host;                    // ours
  uint64_t peak_registered_bytes = 0;  // ours, all threads
  uint32_t fragment_bytes = 0;         // in effect; 0: TCP
  std::vector<Size> sizes;
  bool interrupted = false;  // by a signal: what is here was measured
  uint32_t sharers = 1;      // most clients that the server had at once: its CPU time is all theirs
};

}  // namespace be::apps
