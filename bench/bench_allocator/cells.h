// The cells of Figure 4: each workload with each number of threads, by each contender.
//
//   for each repetition, for each cell, for each contender: one fresh process
//
// so a disturbance of the machine meets all contenders, and every figure is a median over the
// repetitions. A worker that fails ends the run with a Status that names it. One thread.
#pragma once

#include <compare>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "be/base/status.h"
#include "bench/bench_allocator/peers.h"

namespace be::bench {

struct Cell {
  std::string workload;  // "LARGE", "SMALL"
  int threads = 0;
  auto operator<=>(const Cell&) const = default;  // NOLINT(modernize-use-nullptr): clang 14
};

struct Spread {
  double median = 0;
  double min = 0;
  double max = 0;
};
Spread spread_of(std::vector<double> values);  // at least one
void to_json(nlohmann::json& json, const Spread& spread);

struct CellFigures {
  Spread operations_per_cpu_second;          // CPU time of the threads that work
  Spread operations_per_process_cpu_second;  // of all threads, start and end of the process apart
  Spread peak_rss_bytes;
  Spread peak_registered_bytes;  // zero for malloc
  double rss_before_bytes = 0;   // of the process before the first allocation
};

using Matrix = std::map<Cell, std::map<std::string, CellFigures>>;  // by contender

struct CellsPlan {
  std::vector<int> threads = {1, 2, 4, 8};
  int repetitions = 5;
  size_t loops = 0;      // 0: the workload's own
  bool shorter = false;  // fewer loops the more threads there are (--quick)
};

std::vector<Cell> cells_of(const CellsPlan& plan);
Result<Matrix> measure_cells(const CellsPlan& plan, const Contenders& contenders,
                             const std::string& what);

// Our rate over the best peer's, our peaks over the leanest peer's, in one cell.
struct Comparison {
  std::string best_peer;
  double rate_ratio = 0;
  std::string leanest_peer;
  double rss_ratio = 0;
  double registered_ratio = 0;  // our registered bytes over its RSS
};
Comparison compare(const std::map<std::string, CellFigures>& figures,
                   const std::vector<std::string>& peers);

nlohmann::json to_json(const Matrix& matrix, const Contenders& contenders);

}  // namespace be::bench
