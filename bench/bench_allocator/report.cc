#include "bench/bench_allocator/report.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <utility>

#include "bench/bench_allocator/gnuplot.h"

namespace be::bench {

Status Report::open() {
  BE_ASSIGN_OR_RETURN(apps::OutputFile file, apps::OutputFile::open(options_.json));
  file_.emplace(std::move(file));
  return ok_status();
}

Status Report::finish() {
  std::printf("%s\n%s\n\n%s%s", options_.command.c_str(), machine_.to_string().c_str(),
              text_.c_str(), table_of_bars(bars_).c_str());
  for (const std::string& note : notes_) std::printf("note: %s\n", note.c_str());
  json_["command"] = options_.command;
  json_["machine"] = machine_;
  json_["bars"] = bars_;
  json_["notes"] = notes_;
  return file_->commit(json_.dump(2) + "\n");
}

Status Report::draw(const std::string& name, const Draw& draw) {
  std::filesystem::path folder = options_.figures;
  if (folder.empty() && std::filesystem::exists("docs/architecture.md")) folder = "docs/figures";
  if (folder.empty()) {
    note("no " + name + ": this is not the source tree, and --figures was not given");
    return ok_status();
  }
  if (!have_gnuplot()) {
    note("no " + name + ": gnuplot is not installed (package gnuplot-nox)");
    return ok_status();
  }
  std::error_code failure;
  std::filesystem::create_directories(folder, failure);
  if (failure) return error_from_errno(failure.value(), "making the folder " + folder.string());
  return draw(folder / name, {options_.command, machine_.to_string()});
}

bool Report::all_bars_hold() const {
  return std::all_of(bars_.begin(), bars_.end(), [](const Bar& bar) { return bar.holds; });
}

}  // namespace be::bench
