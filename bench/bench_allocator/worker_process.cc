#include "bench/bench_allocator/worker_process.h"

#include <cstdio>
#include <filesystem>
#include <optional>
#include <system_error>

#include "apps/child_process.h"
#include "bench/bench_allocator/jobs.h"

namespace be::bench {
namespace {

constexpr char kPreload[] = "LD_PRELOAD=";

std::vector<std::string> command_line(const nlohmann::json& job, const WorkerPlan& plan) {
  std::vector<std::string> line = plan.environment;
  line.insert(line.end(), plan.wrapper.begin(), plan.wrapper.end());
  line.push_back(std::filesystem::read_symlink("/proc/self/exe"));
  line.insert(line.end(), {"--worker", job.dump()});
  return line;
}

Status check_preloaded(const nlohmann::json& result, const WorkerPlan& plan) {
  for (const std::string& variable : plan.environment) {
    if (variable.rfind(kPreload, 0) != 0) continue;
    const std::string wanted = variable.substr(sizeof(kPreload) - 1);
    const std::string found = result.value("library", "");
    std::error_code failure;
    if (!std::filesystem::equivalent(wanted, found, failure)) {
      return error(Code::kInvalidArgument, "malloc came from \"{}\" though {} was preloaded", found,
                   wanted);
    }
  }
  return ok_status();
}

}  // namespace

Result<WorkerAnswer> run_worker(const nlohmann::json& job, const WorkerPlan& plan) {
  BE_ASSIGN_OR_RETURN(const auto child,
                      apps::ChildProcess::start("the worker for " + job.dump(), "/usr/bin/env",
                                                command_line(job, plan)));
  BE_RETURN_IF_ERROR(child->wait());
  const std::optional<std::string> line = child->next_line();
  const nlohmann::json result =
      nlohmann::json::parse(line.value_or(""), nullptr, /*allow_exceptions=*/false);
  if (result.is_discarded()) {
    return error(Code::kInternal, "{} answered \"{}\"", child->name(), line.value_or(""));
  }
  if (job.at("job") == "cell") BE_RETURN_IF_ERROR(check_preloaded(result, plan));
  return WorkerAnswer{result, child->errors()};
}

int be_worker(const std::string& job) {
  const Result<nlohmann::json> result =
      do_job(nlohmann::json::parse(job, nullptr, /*allow_exceptions=*/false));
  if (!result.ok()) {
    std::fprintf(stderr, "%s\n", result.status().to_string().c_str());
    return 1;
  }
  std::printf("%s\n", result->dump().c_str());
  return 0;
}

}  // namespace be::bench
