#include "bench/bench_allocator/gnuplot.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>

#include "apps/child_process.h"

namespace be::bench {
namespace {

constexpr char kGnuplot[] = "/usr/bin/gnuplot";

Status write_file(const std::string& path, const std::string& text) {
  FILE* file = std::fopen(path.c_str(), "wbe");
  if (file == nullptr) return error_from_errno(errno, "writing " + path);
  const bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  if (std::fclose(file) != 0 || !written) return error_from_errno(errno, "writing " + path);
  return ok_status();
}

Status run_gnuplot(const std::string& script_path) {
  BE_ASSIGN_OR_RETURN(const auto child,
                      apps::ChildProcess::start("gnuplot", kGnuplot, {script_path}));
  return child->wait();
}

}  // namespace

bool have_gnuplot() { return std::filesystem::exists(kGnuplot); }

Status draw_svg(const std::string& path, int width, int height, const std::string& script) {
  const std::string drawn = fmt::format("{}.{}.tmp", path, getpid());
  const std::string script_path = drawn + ".gnuplot";
  const std::string head = fmt::format(
      "set terminal svg size {},{} font 'DejaVu Sans,12' linewidth 1 background '#ffffff'\n"
      "set output {}\n",
      width, height, quoted(drawn));
  BE_RETURN_IF_ERROR(write_file(script_path, head + script));
  const Status status = run_gnuplot(script_path);
  unlink(script_path.c_str());
  std::error_code failure;
  if (status.ok()) std::filesystem::rename(drawn, path, failure);
  if (status.ok() && failure) return error_from_errno(failure.value(), "writing " + path);
  if (!status.ok()) unlink(drawn.c_str());
  return status;
}

std::string quoted(const std::string& text) {
  std::string result = "'";
  for (const char c : text) {
    if (c == '\'') result += '\'';
    result += c;
  }
  return result + "'";
}

std::string caption(const std::vector<std::string>& lines) {
  std::string script;
  for (size_t i = 0; i < lines.size(); ++i) {
    script += fmt::format(
        "set label {} {} at screen 0.02, char {} font ',10' textcolor '#555555' noenhanced\n",
        100 + i, quoted(lines[i]), 0.7 + 0.85 * static_cast<double>(lines.size() - 1 - i));
  }
  return script;
}

}  // namespace be::bench
