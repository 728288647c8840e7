#include <fmt/format.h>

#include "bench/bench_allocator/gnuplot.h"
#include "bench/bench_allocator/inference.h"

namespace be::bench {
namespace {

constexpr int kWidth = 900;
constexpr int kHeight = 480;
constexpr double kMiB = 1 << 20;

constexpr char kPaper[] =
    "The paper's node (Fig. 5, sampled every 30 s): about 2 GB in the first interval, slowly up to "
    "about 2.2 GB, then stable.";

}  // namespace

Status draw_figure5(const std::string& path, const InferenceRun& run,
                    const std::vector<std::string>& notes) {
  std::string script;
  std::string plot = "plot ";
  for (size_t i = 0; i < run.nodes.size(); ++i) {
    const InferenceNode& node = run.nodes[i];
    script += fmt::format("$node{} << EOD\n", i);
    for (const MemorySample& sample : node.samples) {
      script += fmt::format("{:.1f} {:.2f} {:.2f}\n", sample.second, sample.registered_bytes / kMiB,
                            sample.live_bytes / kMiB);
    }
    script += "EOD\n";
    plot += fmt::format("{}$node{} using 1:2 with steps title {} lw {}", i == 0 ? "" : ", ", i,
                        quoted(node.name), i == 0 ? 3 : 1.5);
  }
  std::vector<std::string> lines = {
      "One ranker and its parameter servers, processes of one host, over softnic; each sampled "
      "every second."};
  lines.insert(lines.end(), notes.begin(), notes.end());
  lines.push_back(kPaper);
  script +=
      "set title 'Registered memory of an inference service'\nset xlabel 'seconds since start'\n"
      "set ylabel 'registered, MiB'\nset yrange [0:*]\nset xrange [0:*]\nset offsets 0, 0, graph "
      "0.1, 0\nset grid lc '#dddddd'\nset border 3\n"
      "set tics nomirror\nset key outside right\nset bmargin at screen 0.28\n";
  return draw_svg(path, kWidth, kHeight, script + caption(lines) + plot + "\n");
}

}  // namespace be::bench
