// Figure 4 of the paper: our registered memory beside the allocators that everybody uses, and what
// else issue 4 asks of it; Figure 5: the registered memory of an inference service.
//
//   build/release/bin/bench_allocator                      Figure 4 and all bars, 15 minutes
//   build/release/bin/bench_allocator --quick              within 50 s
//   build/release/bin/bench_allocator inference            Figure 5, 10 minutes
//
// bench_allocator/: workload.h, cells.h, single_figures.h and inference.h tell what is measured.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>
#include <vector>

#include "bench/bench_allocator/bars.h"
#include "bench/bench_allocator/cells.h"
#include "bench/bench_allocator/figure4.h"
#include "bench/bench_allocator/inference.h"
#include "bench/bench_allocator/peers.h"
#include "bench/bench_allocator/report.h"
#include "bench/bench_allocator/single_figures.h"
#include "bench/bench_allocator/worker_process.h"

namespace be::bench {
namespace {

const std::vector<std::string> kParts = {"cells", "huge", "lookup", "producer", "bookkeeping"};

struct Options {
  bool quick = false;
  std::vector<std::string> parts = kParts;
  std::vector<std::string> peers;  // further ones
  CellsPlan cells;
  double seconds = 60;  // of producer and consumer
  bool check = false;
  ReportOptions report;
  InferencePlan inference;
  std::string worker;
};

Status compare_in_cells(const Options& options, const Contenders& contenders, Report& report) {
  BE_ASSIGN_OR_RETURN(const Matrix matrix, measure_cells(options.cells, contenders, "cells"));
  report.text("Million operations per CPU second / peak RSS in MiB; medians of " +
              std::to_string(options.cells.repetitions) + "\n\n" +
              table_of_cells(matrix, contenders, names_of_debians(contenders)));
  report.json()["repetitions"] = options.cells.repetitions;
  report.json()["cells"] = to_json(matrix, contenders);
  report.add(bars_of_cells(matrix, contenders));
  return report.draw("fig4.svg", [&](const std::string& path, const auto& notes) {
    return draw_figure4(path, matrix, contenders, notes);
  });
}

Status compare_with_huge_pages(const Options& options, const Contenders& contenders,
                               Report& report) {
  const Contenders told = with_huge_pages(contenders);
  BE_ASSIGN_OR_RETURN(const Matrix matrix, measure_cells(options.cells, told, "huge pages"));
  report.text(
      "The same, peers told to use transparent huge pages (tcmalloc has no such switch)\n\n" +
      table_of_cells(matrix, told, {}));
  report.json()["huge_pages"] = to_json(matrix, told);
  return ok_status();
}

Status look_up(Report& report) {
  BE_ASSIGN_OR_RETURN(const nlohmann::json lookup, measure_lookup());
  report.json()["lookup"] = lookup;
  report.add({bar_of_lookup(lookup)});
  return ok_status();
}

Status hand_over(const Options& options, Report& report) {
  for (const char* workload : {"LARGE", "SMALL"}) {
    BE_ASSIGN_OR_RETURN(const nlohmann::json figures,
                        measure_producer_consumer(workload, options.seconds));
    report.json()["producer_consumer"].push_back(figures);
    report.add(bars_of_producer_consumer(figures));
  }
  return ok_status();
}

Status count_bookkeeping(Report& report) {
  if (!have_valgrind()) {
    report.note("bookkeeping was not counted: valgrind is not installed");
    return ok_status();
  }
  for (const char* workload : {"LARGE", "SMALL"}) {
    BE_ASSIGN_OR_RETURN(const nlohmann::json figures, measure_bookkeeping(workload));
    report.json()["bookkeeping"].push_back(figures);
    report.add({bar_of_bookkeeping(figures)});
  }
  return ok_status();
}

Status compare_allocators(const Options& options, Report& report) {
  BE_ASSIGN_OR_RETURN(const Contenders contenders, find_contenders(options.peers));
  for (const std::string& absent : contenders.absent) report.note("not installed: " + absent);
  for (const std::string& part : options.parts) {
    Status status;
    if (part == "cells") status = compare_in_cells(options, contenders, report);
    if (part == "huge") status = compare_with_huge_pages(options, contenders, report);
    if (part == "lookup") status = look_up(report);
    if (part == "producer") status = hand_over(options, report);
    if (part == "bookkeeping") status = count_bookkeeping(report);
    BE_RETURN_IF_ERROR(status);
  }
  return ok_status();
}

Status watch_inference(const Options& options, Report& report) {
  BE_ASSIGN_OR_RETURN(const InferenceRun run, run_inference(options.inference));
  report.json()["inference"] = to_json(run);
  report.text("The service: " + run.service.dump() + "\n\n");
  report.add(bars_of_inference(run));
  return report.draw("fig5.svg", [&](const std::string& path, const auto& notes) {
    return draw_figure5(path, run, notes);
  });
}

Status measure(const Options& options, bool inference, Report& report) {
  BE_RETURN_IF_ERROR(report.open());
  BE_RETURN_IF_ERROR(inference ? watch_inference(options, report)
                               : compare_allocators(options, report));
  return report.finish();
}

std::string command_line(int argc, char** argv) {
  std::string line = argv[0];
  for (int i = 1; i < argc; ++i) line += std::string(" ") + argv[i];
  return line;
}

void make_quick(Options& options, const CLI::App& app) {
  const auto given = [&](const char* name) { return app.get_option(name)->count() > 0; };
  options.cells.shorter = true;
  if (!given("--repetitions")) options.cells.repetitions = 3;
  if (!given("--seconds")) options.seconds = 1;
  if (!given("--parts")) options.parts = {"cells", "lookup", "producer"};
}

void add_report_options(CLI::App& app, Options& options) {
  app.add_flag("--check", options.check, "Leave with 1 if a bar does not hold");
  app.add_option("--json", options.report.json, "Also write all figures to this file")
      ->type_name("FILE");
  app.add_option("--figures", options.report.figures,
                 "Folder for the plots (in the source tree: docs/figures)")
      ->type_name("FOLDER");
}

int start(int argc, char** argv) {
  Options options;
  options.report.command = command_line(argc, argv);
  CLI::App app{"The paper's Figure 4: our registered memory beside other allocators."};
  app.add_flag("--quick", options.quick,
               "Ends within 50 s: fewer loops, --repetitions 3, --seconds 1, "
               "--parts cells,lookup,producer");
  app.add_option("--parts", options.parts, "What to measure")
      ->delimiter(',')
      ->check(CLI::IsMember(kParts))
      ->capture_default_str();
  app.add_option("--peer", options.peers, "A further allocator, to be preloaded")
      ->type_name("NAME=LIBRARY");
  app.add_option("--repetitions", options.cells.repetitions, "Medians are taken over these")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_option("--loops", options.cells.loops, "Of the workloads, instead of their own")
      ->check(CLI::Range(1, 1000000));
  app.add_option("--seconds", options.seconds, "Of producer and consumer, for each workload")
      ->check(CLI::Range(0.1, 36000.0))
      ->capture_default_str();
  add_report_options(app, options);
  app.add_option("--worker", options.worker)->group("");

  CLI::App* inference = app.add_subcommand(
      "inference", "The paper's Figure 5: registered memory of an inference service over time.");
  inference->add_option("--seconds", options.inference.seconds, "Of serving")
      ->check(CLI::Range(1.0, 360000.0))
      ->capture_default_str();
  inference->add_option("--servers", options.inference.servers, "Parameter servers")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  inference->add_option("--rate", options.inference.requests_per_second, "Requests per second")
      ->check(CLI::Range(1.0, 1e6))
      ->capture_default_str();
  add_report_options(*inference, options);
  CLI11_PARSE(app, argc, argv);
  if (!options.worker.empty()) return be_worker(options.worker);
  if (options.quick) make_quick(options, app);

  Report report(options.report);
  if (const Status status = measure(options, inference->parsed(), report); !status.ok()) {
    std::fprintf(stderr, "bench_allocator: %s\n", status.to_string().c_str());
    return 1;
  }
  return options.check && !report.all_bars_hold() ? 1 : 0;
}

}  // namespace
}  // namespace be::bench

int main(int argc, char** argv) { return be::bench::start(argc, argv); }
