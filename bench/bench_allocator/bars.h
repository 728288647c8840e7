// The bars of this benchmark (issue 4), each with what was measured and whether it holds.
//
// Pure: figures in, sentences out.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/bench_allocator/cells.h"

namespace be::bench {

struct Bar {
  std::string name;
  std::string bar;       // "<= 2 ns"
  std::string measured;  // "1.2 ns"
  bool holds = false;
};
void to_json(nlohmann::json& json, const Bar& bar);

std::vector<Bar> bars_of_cells(const Matrix& matrix, const Contenders& contenders);
Bar bar_of_lookup(const nlohmann::json& lookup);
std::vector<Bar> bars_of_producer_consumer(const nlohmann::json& figures);  // of one workload
Bar bar_of_bookkeeping(const nlohmann::json& figures);                      // of one workload

}  // namespace be::bench
