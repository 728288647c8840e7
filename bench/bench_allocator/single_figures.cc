#include "bench/bench_allocator/single_figures.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <vector>

#include "bench/bench_allocator/worker_process.h"

namespace be::bench {
namespace {

constexpr char kValgrind[] = "/usr/bin/valgrind";

double rate_of(const nlohmann::json& sample) {
  return sample.at("operations").get<double>() / sample.at("cpu_seconds").get<double>();
}

Result<nlohmann::json> produce_and_consume(const std::string& workload, double seconds,
                                           bool same_thread) {
  std::fprintf(stderr, "producer-consumer, %s, %s: %.1f s\n", workload.c_str(),
               same_thread ? "one thread" : "two threads", seconds);
  BE_ASSIGN_OR_RETURN(WorkerAnswer answer, run_worker({{"job", "producer_consumer"},
                                                       {"workload", workload},
                                                       {"seconds", seconds},
                                                       {"same_thread", same_thread}},
                                                      {}));
  return std::move(answer.result);
}

struct Counted {
  double instructions = 0;
  double operations = 0;
};

// callgrind says "==123== Collected : 4711" at its end.
Result<Counted> count_instructions(const std::string& workload, const std::string& allocator,
                                   size_t loops) {
  BE_ASSIGN_OR_RETURN(
      const WorkerAnswer answer,
      run_worker({{"job", "cell"},
                  {"workload", workload},
                  {"threads", 1},
                  {"loops", loops},
                  {"allocator", allocator}},
                 {.environment = {},
                  .wrapper = {kValgrind, "--tool=callgrind", "--callgrind-out-file=/dev/null"}}));
  const std::string label = "Collected : ";
  const size_t at = answer.errors.find(label);
  if (at == std::string::npos) {
    return error(Code::kInternal, "callgrind gave no count: {}", answer.errors);
  }
  return Counted{std::stod(answer.errors.substr(at + label.size())),
                 answer.result.at("operations").get<double>()};
}

Result<double> instructions_per_operation(const std::string& workload,
                                          const std::string& allocator) {
  constexpr size_t kShort = 2;
  constexpr size_t kLong = 8;
  BE_ASSIGN_OR_RETURN(const Counted small, count_instructions(workload, allocator, kShort));
  BE_ASSIGN_OR_RETURN(const Counted large, count_instructions(workload, allocator, kLong));
  return (large.instructions - small.instructions) / (large.operations - small.operations);
}

}  // namespace

Result<nlohmann::json> measure_lookup() {
  std::fprintf(stderr, "region lookup\n");
  BE_ASSIGN_OR_RETURN(WorkerAnswer answer, run_worker({{"job", "lookup"}}, {}));
  return std::move(answer.result);
}

Result<nlohmann::json> measure_producer_consumer(const std::string& workload, double seconds) {
  BE_ASSIGN_OR_RETURN(const auto before, produce_and_consume(workload, seconds / 6, true));
  BE_ASSIGN_OR_RETURN(const auto apart, produce_and_consume(workload, seconds, false));
  BE_ASSIGN_OR_RETURN(const auto after, produce_and_consume(workload, seconds / 6, true));
  const double same_thread = (rate_of(before) + rate_of(after)) / 2;

  const std::vector<double> samples = apart.at("registered_bytes");
  const auto half = samples.begin() + static_cast<std::ptrdiff_t>(samples.size() / 2);
  const auto peak = [](auto begin, auto end) {
    return begin == end ? 0.0 : *std::max_element(begin, end);
  };
  return nlohmann::json{
      {"workload", workload},
      {"seconds", seconds},
      {"operations", apart.at("operations")},
      {"operations_per_cpu_second", rate_of(apart)},
      {"same_thread_operations_per_cpu_second", {rate_of(before), rate_of(after)}},
      {"rate_to_same_thread", rate_of(apart) / same_thread},
      {"registered_peak_bytes", apart.at("peak_registered_bytes")},
      {"registered_peak_first_half_bytes", peak(samples.begin(), half)},
      {"registered_peak_last_half_bytes", peak(half, samples.end())},
      {"registrations", apart.at("registrations")},
  };
}

bool have_valgrind() { return std::filesystem::exists(kValgrind); }

Result<nlohmann::json> measure_bookkeeping(const std::string& workload) {
  std::fprintf(stderr, "bookkeeping, %s: callgrind\n", workload.c_str());
  BE_ASSIGN_OR_RETURN(const double with, instructions_per_operation(workload, "pool"));
  BE_ASSIGN_OR_RETURN(const double without,
                      instructions_per_operation(workload, "pool without device"));
  return nlohmann::json{{"workload", workload},
                        {"instructions_with_device", with},
                        {"instructions_without_device", without}};
}

}  // namespace be::bench
