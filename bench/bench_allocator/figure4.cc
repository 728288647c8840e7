#include "bench/bench_allocator/figure4.h"

#include <fmt/format.h>

#include "bench/bench_allocator/gnuplot.h"

namespace be::bench {
namespace {

constexpr int kWidth = 900;
constexpr int kHeight = 720;
constexpr double kMiB = 1 << 20;

constexpr char kPaper[] =
    "The paper (section 5.2) has no numbers here: bemalloc and rpmalloc are the fastest of theirs, "
    "with peak memory up to about 50 % higher.";

// Ours first; the others are told apart by colour and by mark.
constexpr const char* kColours[] = {"#d62728", "#7f7f7f", "#1f77b4", "#ff7f0e",
                                    "#2ca02c", "#9467bd", "#17becf", "#8c564b"};
constexpr int kMarks[] = {7, 1, 2, 5, 9, 13, 11, 3};

struct Panel {
  const char* title;
  const char* workload;
  const char* unit;
  int column;  // of the data blocks below
  int left;    // 0, 1
  int top;
};

constexpr Panel kPanels[] = {
    {"(a) LARGE, 64 KiB - 1 MiB: rate", "LARGE", "M operations per CPU second", 2, 0, 1},
    {"(b) LARGE: peak memory", "LARGE", "MiB", 3, 1, 1},
    {"(c) SMALL, 16 B - 16 KiB: rate", "SMALL", "M operations per CPU second", 2, 0, 0},
    {"(d) SMALL: peak memory", "SMALL", "MiB", 3, 1, 0},
};

// threads, rate, RSS, registered
std::string data_block(const Matrix& matrix, const std::string& workload, size_t index,
                       const std::string& name) {
  std::string text = fmt::format("${}{} << EOD\n", workload, index);
  for (const auto& [cell, figures] : matrix) {
    if (cell.workload != workload) continue;
    const CellFigures& of = figures.at(name);
    text += fmt::format("{} {} {} {}\n", cell.threads, of.operations_per_cpu_second.median / 1e6,
                        of.peak_rss_bytes.median / kMiB, of.peak_registered_bytes.median / kMiB);
  }
  return text + "EOD\n";
}

std::string plot_of(const Panel& panel, const Contenders& contenders) {
  std::string text = fmt::format(
      "set title {}\nset ylabel {}\nset lmargin at screen {}\nset rmargin at screen {}\n"
      "set bmargin at screen {}\nset tmargin at screen {}\n",
      quoted(panel.title), quoted(panel.unit), panel.left == 0 ? 0.08 : 0.58,
      panel.left == 0 ? 0.48 : 0.98, panel.top == 0 ? 0.19 : 0.60, panel.top == 0 ? 0.48 : 0.89);
  // One key for all four, over the first.
  text += panel.left == 0 && panel.top == 1
              ? "set key at screen 0.53, 0.985 center top vertical invert maxrows 2 samplen 2\n"
              : "unset key\n";
  text += "plot ";
  // Ours last, on top of the others.
  for (size_t i = contenders.present.size(); i-- > 0;) {
    text += fmt::format("${}{} using 1:{} with linespoints title {} lw {} pt {} ps 0.8 lc '{}'{}",
                        panel.workload, i, panel.column, quoted(contenders.present[i].name),
                        i == 0 ? 3 : 1.5, kMarks[i % std::size(kMarks)],
                        kColours[i % std::size(kColours)], i == 0 ? "" : ", ");
  }
  if (panel.column == 3) {
    text += fmt::format(", ${}0 using 1:4 with lines notitle dt 2 lw 2 lc '{}'", panel.workload,
                        kColours[0]);
  }
  return text + "\n";
}

}  // namespace

Status draw_figure4(const std::string& path, const Matrix& matrix, const Contenders& contenders,
                    const std::vector<std::string>& notes) {
  std::string script;
  for (const char* workload : {"LARGE", "SMALL"}) {
    for (size_t i = 0; i < contenders.present.size(); ++i) {
      script += data_block(matrix, workload, i, contenders.present[i].name);
    }
  }
  script +=
      "set multiplot\nset logscale x 2\nset xrange [0.9:9]\nset xtics (1,2,4,8)\n"
      "set yrange [0:*]\nset grid ytics lc '#dddddd'\nset border 3\nset tics nomirror\n"
      "set xlabel 'threads' offset 0,0.5\n";
  std::vector<std::string> lines = {
      "Medians. Memory is peak RSS; dashed: the pool's peak registered bytes."};
  lines.insert(lines.end(), notes.begin(), notes.end());
  lines.push_back(kPaper);
  script += caption(lines);
  for (const Panel& panel : kPanels) {
    script += plot_of(panel, contenders) + "unset label\n";  // the caption once
  }
  return draw_svg(path, kWidth, kHeight, script + "unset multiplot\n");
}

}  // namespace be::bench
