#include <fmt/format.h>

#include <set>

#include "bench/bench_allocator/report.h"

namespace be::bench {
namespace {

constexpr double kMiB = 1 << 20;

using Figures = std::map<std::string, CellFigures>;

class Table {
 public:
  Table(const Matrix& matrix, const std::string& workload) : matrix_(matrix), workload_(workload) {}

  template <typename Text>
  std::string row(const std::string& name, Text text) const {
    std::string line = fmt::format("{:<22}", name);
    for (const auto& [cell, figures] : matrix_) {
      if (cell.workload == workload_) line += fmt::format("{:>17}", text(cell, figures));
    }
    return line + "\n";
  }

 private:
  const Matrix& matrix_;
  const std::string workload_;
};

std::string rate_text(double rate) {
  const double millions = rate / 1e6;
  return millions < 1 ? fmt::format("{:.3f}", millions) : fmt::format("{:.2f}", millions);
}

std::string table_of(const std::string& workload, const Matrix& matrix,
                     const Contenders& contenders, const std::vector<std::string>& peers) {
  const Table table(matrix, workload);
  std::string text = table.row(workload, [](const Cell& cell, const Figures&) {
    return cell.threads == 1 ? std::string("1 thread") : std::to_string(cell.threads);
  });
  for (const Contender& contender : contenders.present) {
    text += table.row(contender.name, [&](const Cell&, const Figures& figures) {
      const CellFigures& of = figures.at(contender.name);
      return fmt::format("{} / {:.0f}", rate_text(of.operations_per_cpu_second.median),
                         of.peak_rss_bytes.median / kMiB);
    });
  }
  text += table.row("pool, registered", [](const Cell&, const Figures& figures) {
    return fmt::format("{:.0f}", figures.at(kOurs).peak_registered_bytes.median / kMiB);
  });
  if (peers.empty()) return text;
  text += table.row("rate to the best", [&](const Cell&, const Figures& figures) {
    const Comparison comparison = compare(figures, peers);
    return fmt::format("{:.2f} {}", comparison.rate_ratio, comparison.best_peer);
  });
  text += table.row("RSS to the leanest", [&](const Cell&, const Figures& figures) {
    const Comparison comparison = compare(figures, peers);
    return fmt::format("{:.2f} {}", comparison.rss_ratio, comparison.leanest_peer);
  });
  text += table.row("registered to its RSS", [&](const Cell&, const Figures& figures) {
    return fmt::format("{:.2f}", compare(figures, peers).registered_ratio);
  });
  return text;
}

}  // namespace

std::string table_of_cells(const Matrix& matrix, const Contenders& contenders,
                           const std::vector<std::string>& peers) {
  std::string text;
  std::set<std::string> workloads;
  for (const auto& [cell, figures] : matrix) workloads.insert(cell.workload);
  for (const std::string& workload : workloads) {
    text += table_of(workload, matrix, contenders, peers) + "\n";
  }
  return text;
}

std::string table_of_bars(const std::vector<Bar>& bars) {
  std::string text;
  for (const Bar& bar : bars) {
    text += fmt::format("{:<15} {}\n{:16}bar {}; {}\n", bar.holds ? "holds" : "DOES NOT HOLD",
                        bar.name, "", bar.bar, bar.measured);
  }
  return text;
}

}  // namespace be::bench
