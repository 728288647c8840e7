// What a run has to say: tables and bars for people, JSON for programs, plots for documents.
//
//   open -> (text, json, add, note, draw) in any order -> finish
//
// Each carries the command, the machine and the date. The JSON file appears whole or not at all;
// plots that cannot be drawn here (no folder, no gnuplot) are noted. One thread.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "apps/output_file.h"
#include "bench/bench_allocator/bars.h"
#include "bench/bench_allocator/cells.h"
#include "bench/bench_allocator/machine.h"

namespace be::bench {

struct ReportOptions {
  std::string command;
  std::string json;     // file; empty: none
  std::string figures;  // folder; empty: docs/figures, if this is the source tree
};

class Report {
 public:
  explicit Report(const ReportOptions& options) : options_(options) {}

  Status open();
  Status finish();

  void text(const std::string& text) { text_ += text; }
  void add(const std::vector<Bar>& bars) { bars_.insert(bars_.end(), bars.begin(), bars.end()); }
  void note(const std::string& text) { notes_.push_back(text); }  // what the reader misses
  nlohmann::json& json() { return json_; }

  using Draw =
      std::function<Status(const std::string& path, const std::vector<std::string>& notes)>;
  Status draw(const std::string& name, const Draw& draw);

  bool all_bars_hold() const;

 private:
  const ReportOptions options_;
  const Machine machine_ = this_machine();
  std::optional<apps::OutputFile> file_;
  std::string text_;
  std::vector<Bar> bars_;
  std::vector<std::string> notes_;
  nlohmann::json json_;
};

// "LARGE" and "SMALL", a row a contender, a column a number of threads:
// million operations per CPU second / peak RSS in MiB; then ours beside the best and the leanest of
// `peers`, if there are any.
std::string table_of_cells(const Matrix& matrix, const Contenders& contenders,
                           const std::vector<std::string>& peers);

std::string table_of_bars(const std::vector<Bar>& bars);

}  // namespace be::bench
