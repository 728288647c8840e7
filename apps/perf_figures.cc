#include "apps/perf_figures.h"

#include <algorithm>
#include <cassert>

namespace be::apps {
namespace {

struct Field {
  const char* name;
  double PerfFigures::*figure;
};

constexpr Field kFields[] = {
    {"messages", &PerfFigures::messages},
    {"seconds", &PerfFigures::seconds},
    {"mean_us", &PerfFigures::mean_us},
    {"p50_us", &PerfFigures::p50_us},
    {"p99_us", &PerfFigures::p99_us},
    {"max_us", &PerfFigures::max_us},
    {"messages_per_second", &PerfFigures::messages_per_second},
    {"gigabytes_per_second", &PerfFigures::gigabytes_per_second},
    {"client_cpu_us_per_message", &PerfFigures::client_cpu_us_per_message},
    {"server_cpu_us_per_message", &PerfFigures::server_cpu_us_per_message},
    {"system_cpu_share", &PerfFigures::system_cpu_share},
    {"cpu_seconds_per_gigabyte", &PerfFigures::cpu_seconds_per_gigabyte},
    {"background_gigabytes_per_second", &PerfFigures::background_gigabytes_per_second},
};

double seconds(Nanoseconds time) { return std::chrono::duration<double>(time).count(); }
double us(double ns) { return ns / 1e3; }

}  // namespace

PerfFigures figures_of(const PerfSample& sample) {
  assert(sample.answered > 0 && sample.elapsed > Nanoseconds(0));
  const auto messages = static_cast<double>(sample.answered);
  const double elapsed = seconds(sample.elapsed);
  const double gigabytes = messages * sample.bytes / 1e9;
  const double background = static_cast<double>(sample.background_bytes) / 1e9;
  const CpuTime cpu = sample.client_cpu + sample.server_cpu;
  const double cpu_seconds = seconds(cpu.total());
  PerfFigures figures;
  figures.messages = messages;
  figures.seconds = elapsed;
  figures.mean_us = us(sample.times_ns.mean());
  figures.p50_us = us(static_cast<double>(sample.times_ns.percentile(0.50)));
  figures.p99_us = us(static_cast<double>(sample.times_ns.percentile(0.99)));
  figures.max_us = us(static_cast<double>(sample.times_ns.max()));
  figures.messages_per_second = messages / elapsed;
  figures.gigabytes_per_second = gigabytes / elapsed;
  figures.client_cpu_us_per_message = seconds(sample.client_cpu.total()) * 1e6 / messages;
  figures.server_cpu_us_per_message = seconds(sample.server_cpu.total()) * 1e6 / messages;
  figures.system_cpu_share = cpu_seconds > 0 ? seconds(cpu.system) / cpu_seconds : 0;
  figures.cpu_seconds_per_gigabyte = cpu_seconds / (gigabytes + background);
  figures.background_gigabytes_per_second = background / elapsed;
  return figures;
}

PerfFigures median_of(const std::vector<PerfFigures>& repetitions) {
  assert(!repetitions.empty());
  PerfFigures median;
  std::vector<double> values(repetitions.size());
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  for (const Field& field : kFields) {
    std::transform(repetitions.begin(), repetitions.end(), values.begin(),
                   [&](const PerfFigures& one) { return one.*field.figure; });
    std::nth_element(values.begin(), middle, values.end());
    median.*field.figure = *middle;
    if (values.size() % 2 == 0) {
      median.*field.figure = (*middle + *std::max_element(values.begin(), middle)) / 2;
    }
  }
  return median;
}

nlohmann::ordered_json to_json(const PerfFigures& figures) {
  nlohmann::ordered_json json;
  for (const Field& field : kFields) json[field.name] = figures.*field.figure;
  return json;
}

}  // namespace be::apps
