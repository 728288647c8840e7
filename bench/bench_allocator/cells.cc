#include "bench/bench_allocator/cells.h"

#include <algorithm>
#include <cstdio>

#include "bench/bench_allocator/host_memory.h"
#include "bench/bench_allocator/worker_process.h"
#include "bench/bench_allocator/workload.h"

namespace be::bench {
namespace {

using Samples = std::map<Cell, std::map<std::string, std::vector<nlohmann::json>>>;

// Enough for peaks to be reached and for warm caches to count; about a quarter of a second.
size_t loops_of_quick(const Cell& cell) {
  const auto threads = static_cast<size_t>(cell.threads);
  return cell.workload == "LARGE" ? std::max<size_t>(5, 24 / threads)
                                  : std::max<size_t>(3, 12 / threads);
}

// More than any allocator takes.
size_t peak_bytes(const Cell& cell) {
  const size_t per_thread = cell.workload == "LARGE" ? 220 : 90;
  return (per_thread * static_cast<size_t>(cell.threads)) << 20;
}

size_t loops_of(const CellsPlan& plan, const Cell& cell) {
  if (plan.loops != 0) return plan.loops;
  if (plan.shorter) return loops_of_quick(cell);
  return cell.workload == "LARGE" ? large_workload().loops : small_workload().loops;
}

Spread over(const std::vector<nlohmann::json>& samples, auto figure) {
  std::vector<double> values;
  values.reserve(samples.size());
  for (const nlohmann::json& sample : samples) values.push_back(figure(sample));
  return spread_of(std::move(values));
}

CellFigures figures_of(const std::vector<nlohmann::json>& samples) {
  const auto rate = [&](const char* seconds) {
    return over(samples, [&](const nlohmann::json& sample) {
      return sample.at("operations").get<double>() / sample.at(seconds).get<double>();
    });
  };
  const auto bytes = [&](const char* field) {
    return over(samples, [&](const nlohmann::json& sample) { return sample.value(field, 0.0); });
  };
  return {rate("thread_cpu_seconds"), rate("process_cpu_seconds"), bytes("peak_rss_bytes"),
          bytes("peak_registered_bytes"), bytes("rss_before_bytes").median};
}

}  // namespace

Spread spread_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return {values[values.size() / 2], values.front(), values.back()};
}

void to_json(nlohmann::json& json, const Spread& spread) {
  json = {{"median", spread.median}, {"min", spread.min}, {"max", spread.max}};
}

std::vector<Cell> cells_of(const CellsPlan& plan) {
  std::vector<Cell> cells;
  for (const char* workload : {"LARGE", "SMALL"}) {
    for (const int threads : plan.threads) cells.push_back({workload, threads});
  }
  return cells;
}

Result<Matrix> measure_cells(const CellsPlan& plan, const Contenders& contenders,
                             const std::string& what) {
  Samples samples;
  for (int repetition = 1; repetition <= plan.repetitions; ++repetition) {
    for (const Cell& cell : cells_of(plan)) {
      std::fprintf(stderr, "%s: repetition %d of %d, %s, %d threads\n", what.c_str(), repetition,
                   plan.repetitions, cell.workload.c_str(), cell.threads);
      for (const Contender& contender : contenders.present) {
        const nlohmann::json job = {{"job", "cell"},
                                    {"workload", cell.workload},
                                    {"threads", cell.threads},
                                    {"loops", loops_of(plan, cell)},
                                    {"allocator", contender.allocator}};
        fetch_memory_from_host(peak_bytes(cell));
        const auto answer = run_worker(job, {.environment = contender.environment, .wrapper = {}});
        if (!answer.ok()) return answer.status().with_context(contender.name);
        samples[cell][contender.name].push_back(answer->result);
      }
    }
  }
  Matrix matrix;
  for (const auto& [cell, of_cell] : samples) {
    for (const auto& [name, of_contender] : of_cell) matrix[cell][name] = figures_of(of_contender);
  }
  return matrix;
}

Comparison compare(const std::map<std::string, CellFigures>& figures,
                   const std::vector<std::string>& peers) {
  const CellFigures& ours = figures.at(kOurs);
  double best = 0;
  double leanest = 0;
  Comparison comparison;
  for (const std::string& peer : peers) {
    const double rate = figures.at(peer).operations_per_cpu_second.median;
    const double peak = figures.at(peer).peak_rss_bytes.median;
    if (comparison.best_peer.empty() || rate > best) {
      best = rate;
      comparison.best_peer = peer;
    }
    if (comparison.leanest_peer.empty() || peak < leanest) {
      leanest = peak;
      comparison.leanest_peer = peer;
    }
  }
  comparison.rate_ratio = ours.operations_per_cpu_second.median / best;
  comparison.rss_ratio = ours.peak_rss_bytes.median / leanest;
  comparison.registered_ratio = ours.peak_registered_bytes.median / leanest;
  return comparison;
}

nlohmann::json to_json(const Matrix& matrix, const Contenders& contenders) {
  nlohmann::json cells = nlohmann::json::array();
  for (const auto& [cell, figures] : matrix) {
    nlohmann::json entry = {{"workload", cell.workload}, {"threads", cell.threads}};
    for (const Contender& contender : contenders.present) {
      const CellFigures& of = figures.at(contender.name);
      nlohmann::json& allocator = entry["allocators"][contender.name];
      allocator = {{"operations_per_cpu_second", of.operations_per_cpu_second},
                   {"operations_per_process_cpu_second", of.operations_per_process_cpu_second},
                   {"peak_rss_bytes", of.peak_rss_bytes},
                   {"rss_before_bytes", of.rss_before_bytes}};
      if (contender.name == kOurs) {
        allocator["peak_registered_bytes"] = of.peak_registered_bytes;
      }
    }
    const std::vector<std::string> peers = names_of_debians(contenders);
    if (!peers.empty()) {
      const Comparison comparison = compare(figures, peers);
      entry["best_peer"] = comparison.best_peer;
      entry["rate_to_best_peer"] = comparison.rate_ratio;
      entry["leanest_peer"] = comparison.leanest_peer;
      entry["rss_to_leanest_peer"] = comparison.rss_ratio;
      entry["registered_to_leanest_peer"] = comparison.registered_ratio;
    }
    cells.push_back(std::move(entry));
  }
  return cells;
}

}  // namespace be::bench
