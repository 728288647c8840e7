#include "bench/bench_allocator/inference.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>

#include "apps/child_process.h"

namespace be::bench {
namespace {

constexpr double kMiB = 1 << 20;

using apps::ChildProcess;

Result<std::unique_ptr<ChildProcess>> start(const std::string& name, const nlohmann::json& job) {
  return ChildProcess::start(name, std::filesystem::read_symlink("/proc/self/exe"),
                             {"--worker", job.dump()});
}

// Its next line; waits for it.
Result<nlohmann::json> next_line(ChildProcess& process) {
  std::optional<std::string> line;
  while (!(line = process.next_line())) {
    if (process.stdout_fd() < 0) {
      const Status end = process.wait();
      return end.ok() ? error(Code::kUnavailable, "{} ended too early", process.name()) : end;
    }
    pollfd wait{process.stdout_fd(), POLLIN, 0};
    ::poll(&wait, 1, -1);
    process.read_output();
  }
  nlohmann::json json = nlohmann::json::parse(*line, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) {
    return error(Code::kInternal, "{} said \"{}\"", process.name(), *line);
  }
  return json;
}

MemorySample sample_of(const nlohmann::json& line, double start_second) {
  return {.second = line.at("now_seconds").get<double>() - start_second,
          .registered_bytes = line.at("registered_bytes"),
          .live_bytes = line.at("live_bytes"),
          .registrations = line.at("registrations"),
          .deregistrations = line.at("deregistrations")};
}

// What the servers have said so far, after the ranker's end.
Status collect(ChildProcess& server, double start_second, InferenceNode& node) {
  server.read_output();
  while (const std::optional<std::string> line = server.next_line()) {
    const nlohmann::json json = nlohmann::json::parse(*line, nullptr, /*allow_exceptions=*/false);
    if (json.is_discarded()) {
      return error(Code::kInternal, "{} said \"{}\"", server.name(), *line);
    }
    node.samples.push_back(sample_of(json, start_second));
  }
  return ok_status();
}

// Samples of the last half.
std::vector<MemorySample> last_half(const InferenceNode& node) {
  if (node.samples.empty()) return {};
  const double middle = node.samples.back().second / 2;
  const auto begin =
      std::find_if(node.samples.begin(), node.samples.end(),
                   [&](const MemorySample& sample) { return sample.second >= middle; });
  return {begin, node.samples.end()};
}

struct Span {
  double lowest = 0;
  double highest = 0;
};

Span registered_span(const std::vector<MemorySample>& samples) {
  const auto [low, high] = std::minmax_element(samples.begin(), samples.end(),
                                               [](const MemorySample& a, const MemorySample& b) {
                                                 return a.registered_bytes < b.registered_bytes;
                                               });
  return {low->registered_bytes, high->registered_bytes};
}

}  // namespace

Result<InferenceRun> run_inference(const InferencePlan& plan) {
  InferenceRun run;
  run.nodes.push_back({.name = "ranker", .samples = {}});
  std::vector<std::unique_ptr<ChildProcess>> servers;
  std::vector<std::string> addresses;
  for (uint32_t i = 0; i < plan.servers; ++i) {
    run.nodes.push_back({.name = fmt::format("server {}", i), .samples = {}});
    BE_ASSIGN_OR_RETURN(
        auto server, start(run.nodes.back().name,
                           {{"job", "inference_server"}, {"index", i}, {"servers", plan.servers}}));
    BE_ASSIGN_OR_RETURN(const nlohmann::json ready, next_line(*server));
    addresses.push_back(ready.at("address"));
    servers.push_back(std::move(server));
  }
  BE_ASSIGN_OR_RETURN(const auto ranker,
                      start("ranker", {{"job", "inference_ranker"},
                                       {"servers", addresses},
                                       {"seconds", plan.seconds},
                                       {"requests_per_second", plan.requests_per_second}}));
  std::optional<double> start_second;
  while (run.service.is_null()) {
    BE_ASSIGN_OR_RETURN(const nlohmann::json line, next_line(*ranker));
    if (line.contains("result")) {
      run.service = line.at("result");
      continue;
    }
    if (!start_second) start_second = line.at("now_seconds");
    run.nodes[0].samples.push_back(sample_of(line, *start_second));
    for (size_t i = 0; i < servers.size(); ++i) {
      BE_RETURN_IF_ERROR(collect(*servers[i], *start_second, run.nodes[i + 1]));
    }
    const MemorySample& latest = run.nodes[0].samples.back();
    std::fprintf(stderr, "\rinference: %.0f of %.0f s, ranker has registered %.0f MiB ",
                 latest.second, plan.seconds, latest.registered_bytes / kMiB);
  }
  std::fprintf(stderr, "\n");
  BE_RETURN_IF_ERROR(ranker->wait());
  return run;
}

std::vector<Bar> bars_of_inference(const InferenceRun& run) {
  uint64_t registrations = 0;
  bool flat = true;
  std::string spans;
  for (const InferenceNode& node : run.nodes) {
    const std::vector<MemorySample> samples = last_half(node);
    if (samples.empty()) continue;
    registrations += samples.back().registrations - samples.front().registrations;
    const Span span = registered_span(samples);
    flat = flat && span.lowest == span.highest;
    spans += fmt::format("{}{} {:.0f}", spans.empty() ? "" : ", ", node.name, span.lowest / kMiB);
    if (span.lowest != span.highest) spans += fmt::format(" to {:.0f}", span.highest / kMiB);
  }
  return {{.name = "Fig. 5: registrations of all nodes in the last half",
           .bar = "0",
           .measured = std::to_string(registrations),
           .holds = registrations == 0},
          {.name = "Fig. 5: registered bytes after warm-up",
           .bar = "the same all through the last half",
           .measured = spans + " MiB",
           .holds = flat}};
}

nlohmann::json to_json(const InferenceRun& run) {
  nlohmann::json nodes = nlohmann::json::array();
  for (const InferenceNode& node : run.nodes) {
    nlohmann::json& entry = nodes.emplace_back(nlohmann::json{{"name", node.name}});
    for (const MemorySample& sample : node.samples) {
      entry["seconds"].push_back(sample.second);
      entry["registered_bytes"].push_back(sample.registered_bytes);
      entry["live_bytes"].push_back(sample.live_bytes);
      entry["registrations"].push_back(sample.registrations);
      entry["deregistrations"].push_back(sample.deregistrations);
    }
  }
  return {{"service", run.service}, {"nodes", std::move(nodes)}};
}

}  // namespace be::bench
