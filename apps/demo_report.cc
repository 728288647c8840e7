#include "apps/demo_report.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

namespace be::apps {
namespace {

using nlohmann::json;

// Of several trainers: counts added, means weighted, percentiles of the slowest.
json merged(const std::vector<Worker*>& workers, const char* operation) {
  uint64_t count = 0;
  double sum_us = 0;
  double bytes = 0;
  json result = {{"p50_us", 0.0}, {"p99_us", 0.0}, {"max_us", 0.0}};
  for (const Worker* worker : workers) {
    const json& one = worker->result[operation];
    const auto of_one = one["count"].get<double>();
    count += one["count"].get<uint64_t>();
    sum_us += of_one * one["mean_us"].get<double>();
    bytes += of_one * one["bytes_per_op"].get<double>();
    for (const char* key : {"p50_us", "p99_us", "max_us"}) {
      result[key] = std::max(result[key].get<double>(), one[key].get<double>());
    }
  }
  result["count"] = count;
  result["mean_us"] = sum_us / std::max(1.0, static_cast<double>(count));
  result["bytes_per_op"] = bytes / std::max(1.0, static_cast<double>(count));
  return result;
}

struct Line {
  const char* label;
  const char* pointer;  // JSON pointer below the transport; null: a heading
  int decimals;
  bool ratio;
};

constexpr Line kLines[] = {
    {"AUC on the held-out tenth", "/auc", 4, false},
    {"Fetch: one ranking request at a time", nullptr, 0, false},
    {"  count", "/fetch/count", 0, false},
    {"  mean, us", "/fetch/mean_us", 1, true},
    {"  P50, us", "/fetch/p50_us", 1, true},
    {"  P99, us", "/fetch/p99_us", 1, true},
    {"  bytes", "/fetch/bytes_per_op", 0, false},
    {"  CPU time, us", "/fetch/cpu_us_per_op", 1, true},
    {"    user", "/fetch/cpu_user_us_per_op", 1, true},
    {"    system", "/fetch/cpu_system_us_per_op", 1, true},
    {"Push: one batch of gradients at a time", nullptr, 0, false},
    {"  count", "/push/count", 0, false},
    {"  mean, us", "/push/mean_us", 1, true},
    {"  P50, us", "/push/p50_us", 1, true},
    {"  P99, us", "/push/p99_us", 1, true},
    {"  bytes", "/push/bytes_per_op", 0, false},
    {"  CPU time, us", "/push/cpu_us_per_op", 1, true},
    {"    user", "/push/cpu_user_us_per_op", 1, true},
    {"    system", "/push/cpu_system_us_per_op", 1, true},
    {"Training, all trainers at once", nullptr, 0, false},
    {"  seconds", "/training/seconds", 2, true},
    {"  Fetches and Pushes a second", "/training/operations_per_second", 0, true},
    {"  Fetch mean, us", "/training/fetch/mean_us", 1, true},
    {"  Fetch P99, us", "/training/fetch/p99_us", 1, true},
    {"  Push mean, us", "/training/push/mean_us", 1, true},
    {"  Push P99, us", "/training/push/p99_us", 1, true},
    {"Registered memory of all, peak, MiB", "/peak_registered_mib", 1, true},
};

}  // namespace

json transport_figures(Cluster& cluster) {
  const std::vector<Worker*> trainers = cluster.trainers();
  const json& ranker = cluster.ranker().result;
  double seconds = 0;
  uint64_t peak_bytes = ranker["peak_registered_bytes"];
  for (const Worker* trainer : trainers) {
    seconds = std::max(seconds, trainer->result["seconds"].get<double>());
    peak_bytes += trainer->result["own_peak_registered_bytes"].get<uint64_t>();
  }
  json training = {{"seconds", seconds},
                   {"loss", trainers[0]->result["loss"]},
                   {"auc", trainers[0]->result["auc"]},
                   {"fetch", merged(trainers, "fetch")},
                   {"push", merged(trainers, "push")}};
  training["operations_per_second"] =
      (training["fetch"]["count"].get<double>() + training["push"]["count"].get<double>()) /
      seconds;
  return {{"auc", ranker["auc"]},
          {"held_out", ranker["held_out"]},
          {"transport", ranker["transport"]},
          {"fetch", ranker["fetch"]},
          {"push", trainers[0]->result["replayed_push"]},
          {"training", training},
          {"rows", ranker["rows"]},
          {"missing_keys", ranker["missing_keys"]},
          {"peak_registered_bytes", peak_bytes},
          {"peak_registered_mib", static_cast<double>(peak_bytes) / (1 << 20)}};
}

json demo_figures(const ClusterPlan& plan, const std::vector<std::string>& transports,
                  std::vector<json> figures) {
  json demo;
  for (size_t i = 0; i < transports.size(); ++i) demo[transports[i]] = std::move(figures[i]);
  demo["setup"] = {{"servers", plan.servers},
                   {"trainers", plan.trainers},
                   {"epochs", plan.epochs},
                   {"batch", plan.batch},
                   {"seed", plan.seed},
                   {"candidates", plan.candidates},
                   {"rounds", plan.rounds},
                   {"requests_per_round", plan.requests_per_round},
                   {"pushes_per_round", plan.pushes_per_round},
                   {"processors", ::sysconf(_SC_NPROCESSORS_ONLN)}};
  if (transports.size() < 2) return demo;
  const json& first = demo[transports[0]];
  const json& second = demo[transports[1]];
  for (const char* operation : {"fetch", "push"}) {
    for (const char* key : {"mean_us", "p50_us", "p99_us", "cpu_us_per_op"}) {
      demo["ratio"][operation][key] =
          first[operation][key].get<double>() / second[operation][key].get<double>();
    }
  }
  return demo;
}

std::string demo_table(const json& demo, const std::vector<std::string>& transports) {
  std::string table = fmt::format("{:42}", "");
  for (const std::string& transport : transports) table += fmt::format("{:>12}", transport);
  if (transports.size() == 2) table += fmt::format("{:>14}", transports[0] + "/" + transports[1]);
  table += '\n';
  for (const Line& line : kLines) {
    if (line.pointer == nullptr) {
      table += fmt::format("{}\n", line.label);
      continue;
    }
    table += fmt::format("{:42}", line.label);
    std::vector<double> values;
    for (const std::string& transport : transports) {
      values.push_back(demo[transport].at(json::json_pointer(line.pointer)).get<double>());
      table += fmt::format("{:>12.{}f}", values.back(), line.decimals);
    }
    if (line.ratio && values.size() == 2 && values[1] > 0) {
      table += fmt::format("{:>14.2f}", values[0] / values[1]);
    }
    table += '\n';
  }
  return table;
}

}  // namespace be::apps
