#include "bench/bench_allocator/bars.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "be/memory/pool_options.h"

namespace be::bench {
namespace {

constexpr double kRateBar = 1.0;
constexpr double kRateBarLargeAlone = 0.97;  // LARGE, one thread
constexpr double kRateBarOfMost = 1.15;
constexpr size_t kMost = 5;  // of eight cells
constexpr double kMemoryBar = 1.05;
constexpr double kLookupBarNs = 2.0;
constexpr double kProducerConsumerBar = 0.8;
constexpr double kBookkeepingBar = 0.03;

std::string name_of(const Cell& cell) { return fmt::format("{} x{}", cell.workload, cell.threads); }

Bar rate_bar(const Matrix& matrix, const std::vector<std::string>& peers,
             const std::string& against) {
  Bar bar{.name = "rate, every cell, to the best of " + against,
          .bar = fmt::format(">= {:.2f} ({:.2f} in LARGE x1)", kRateBar, kRateBarLargeAlone),
          .measured = "",
          .holds = true};
  std::string misses;
  double lowest = HUGE_VAL;
  std::string lowest_cell;
  for (const auto& [cell, figures] : matrix) {
    const bool alone = cell.workload == "LARGE" && cell.threads == 1;
    const double ratio = compare(figures, peers).rate_ratio;
    if (ratio < (alone ? kRateBarLargeAlone : kRateBar)) {
      bar.holds = false;
      misses += fmt::format(", {} {:.2f}", name_of(cell), ratio);
    }
    if (ratio < lowest) {
      lowest = ratio;
      lowest_cell = name_of(cell);
    }
  }
  bar.measured = bar.holds ? fmt::format("lowest {:.2f} ({})", lowest, lowest_cell)
                           : "missed in " + misses.substr(2);
  return bar;
}

Bar most_bar(const Matrix& matrix, const std::vector<std::string>& peers,
             const std::string& against) {
  size_t reached = 0;
  for (const auto& [cell, figures] : matrix) {
    if (compare(figures, peers).rate_ratio >= kRateBarOfMost) ++reached;
  }
  return {.name = "rate, most cells, to the best of " + against,
          .bar = fmt::format(">= {:.2f} in {} cells", kRateBarOfMost, kMost),
          .measured = fmt::format("in {} of {}", reached, matrix.size()),
          .holds = reached >= kMost};
}

Bar memory_bar(const Matrix& matrix, const std::vector<std::string>& peers, const std::string& what,
               double Comparison::*ratio_of, const std::string& against) {
  Bar bar{.name = fmt::format("peak {}, every cell, to the leanest of {}", what, against),
          .bar = fmt::format("<= {:.2f}", kMemoryBar),
          .measured = "",
          .holds = true};
  std::string misses;
  double highest = 0;
  std::string highest_cell;
  for (const auto& [cell, figures] : matrix) {
    const double ratio = compare(figures, peers).*ratio_of;
    if (ratio > kMemoryBar) {
      bar.holds = false;
      misses += fmt::format(", {} {:.2f}", name_of(cell), ratio);
    }
    if (ratio > highest) {
      highest = ratio;
      highest_cell = name_of(cell);
    }
  }
  bar.measured = bar.holds ? fmt::format("highest {:.2f} ({})", highest, highest_cell)
                           : "missed in " + misses.substr(2);
  return bar;
}

}  // namespace

void to_json(nlohmann::json& json, const Bar& bar) {
  json = {{"name", bar.name}, {"bar", bar.bar}, {"measured", bar.measured}, {"holds", bar.holds}};
}

std::vector<Bar> bars_of_cells(const Matrix& matrix, const Contenders& contenders) {
  std::vector<Bar> bars;
  const auto add = [&](const std::vector<std::string>& peers, const std::string& against) {
    bars.push_back(rate_bar(matrix, peers, against));
    if (against == "Debian's") bars.push_back(most_bar(matrix, peers, against));
    bars.push_back(memory_bar(matrix, peers, "RSS", &Comparison::rss_ratio, against));
    bars.push_back(memory_bar(matrix, peers, "registered", &Comparison::registered_ratio, against));
  };
  add(names_of_debians(contenders), "Debian's");
  if (!contenders.absent.empty()) {
    bars.push_back({.name = "all four of Debian's allocators are compared",
                    .bar = "installed",
                    .measured = fmt::format("without {}", fmt::join(contenders.absent, ", ")),
                    .holds = false});
  }
  for (const Contender& contender : contenders.present) {
    if (contender.name != kOurs && !contender.debian) add({contender.name}, contender.name);
  }
  return bars;
}

Bar bar_of_lookup(const nlohmann::json& lookup) {
  const double hot = lookup.at("hot_ns");
  return {
      .name = "region lookup, hot",
      .bar = fmt::format("<= {} ns", kLookupBarNs),
      .measured = fmt::format("{:.2f} ns ({:.2f} over {} blocks, {:.2f} one after the other)", hot,
                              lookup.at("blocks_ns").get<double>(), lookup.at("blocks").get<int>(),
                              lookup.at("chained_ns").get<double>()),
      .holds = hot <= kLookupBarNs};
}

std::vector<Bar> bars_of_producer_consumer(const nlohmann::json& figures) {
  const std::string workload = figures.at("workload");
  const double ratio = figures.at("rate_to_same_thread");
  const double first = figures.at("registered_peak_first_half_bytes");
  const double last = figures.at("registered_peak_last_half_bytes");
  return {{.name = fmt::format("producer-consumer, {}: rate to the same-thread rate", workload),
           .bar = fmt::format(">= {:.2f}", kProducerConsumerBar),
           .measured = fmt::format("{:.2f}", ratio),
           .holds = ratio >= kProducerConsumerBar},
          {.name = fmt::format("producer-consumer, {}: registered memory", workload),
           .bar = "flat (the last half's peak is at most a block above the first half's)",
           .measured = fmt::format("{:.0f} MiB, then {:.0f} MiB, in {:.0f} s", first / (1 << 20),
                                   last / (1 << 20), figures.at("seconds").get<double>()),
           .holds = last <= first + static_cast<double>(PoolOptions().block_bytes)}};
}

Bar bar_of_bookkeeping(const nlohmann::json& figures) {
  const double with = figures.at("instructions_with_device");
  const double without = figures.at("instructions_without_device");
  const double added = with / without - 1;
  return {.name = fmt::format("bookkeeping, {}: instructions of an operation, device or none",
                              figures.at("workload").get<std::string>()),
          .bar = fmt::format("<= +{:.0f} %", kBookkeepingBar * 100),
          .measured = fmt::format("{:+.2f} % ({:.1f} and {:.1f})", added * 100, with, without),
          .holds = added <= kBookkeepingBar};
}

}  // namespace be::bench
