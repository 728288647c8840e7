#include "apps/cluster.h"

#include <fmt/format.h>
#include <poll.h>

#include <csignal>
#include <utility>

namespace be::apps {
namespace {

bool idle(const Worker& worker) { return worker.waiting || !worker.result.is_null(); }

// Waits until one of the children has something to read.
void wait_for_output(const std::vector<ChildProcess*>& children) {
  std::vector<pollfd> waits;
  for (const ChildProcess* child : children) {
    waits.push_back({child->stdout_fd(), POLLIN, 0});
    waits.push_back({child->stderr_fd(), POLLIN, 0});
  }
  ::poll(waits.data(), waits.size(), -1);
  for (ChildProcess* child : children) child->read_output();
}

}  // namespace

Status Cluster::start_servers() {
  for (uint32_t i = 0; i < plan_.servers; ++i) {
    std::vector<std::string> arguments = {"serve", "--transport", transport_, "--shard",
                                          fmt::format("{}/{}", i, plan_.servers)};
    arguments.insert(arguments.end(), plan_.settings.begin(), plan_.settings.end());
    BE_ASSIGN_OR_RETURN(auto server,
                        ChildProcess::start(fmt::format("server {} ({})", i, transport_),
                                            plan_.program, arguments));
    servers_.push_back(std::move(server));
  }
  constexpr std::string_view kReady = "ready ";
  for (const auto& server : servers_) {
    std::optional<std::string> line;
    while (!(line = server->next_line())) {
      if (server->stdout_fd() < 0) return check_servers();
      wait_for_output({server.get()});
    }
    if (!line->starts_with(kReady)) {
      return error(Code::kInternal, "{} said '{}'", server->name(), *line);
    }
    addresses_ += (addresses_.empty() ? "" : ",") + line->substr(kReady.size());
  }
  return ok_status();
}

Result<Worker> Cluster::start_worker(const std::string& name, std::vector<std::string> arguments) {
  const std::vector<std::string> common = {
      "--servers",   addresses_, "--data",  plan_.data, "--seed", std::to_string(plan_.seed),
      "--transport", transport_, "--paced", "--events"};
  arguments.insert(arguments.end(), common.begin(), common.end());
  arguments.insert(arguments.end(), plan_.settings.begin(), plan_.settings.end());
  Worker worker;
  worker.progress = nlohmann::json::object();
  BE_ASSIGN_OR_RETURN(worker.process, ChildProcess::start(fmt::format("{} ({})", name, transport_),
                                                          plan_.program, arguments));
  return worker;
}

Status Cluster::start_trainers() {
  for (uint32_t i = 0; i < plan_.trainers; ++i) {
    std::vector<std::string> arguments = {"train",
                                          "--trainer",
                                          fmt::format("{}/{}", i, plan_.trainers),
                                          "--epochs",
                                          std::to_string(plan_.epochs),
                                          "--batch",
                                          std::to_string(plan_.batch)};
    if (i == 0) {
      arguments.insert(arguments.end(), {"--replay-pushes", std::to_string(plan_.pushes_per_round),
                                         "--replay-rounds", std::to_string(plan_.rounds)});
    } else {
      arguments.emplace_back("--no-evaluation");
    }
    BE_ASSIGN_OR_RETURN(Worker worker, start_worker(fmt::format("trainer {}", i), arguments));
    trainers_.push_back(std::move(worker));
  }
  return wait_until_waiting(trainers(), {});
}

Status Cluster::start_ranker() {
  BE_ASSIGN_OR_RETURN(
      ranker_, start_worker("ranker", {"rank", "--rounds", std::to_string(plan_.rounds),
                                       "--requests", std::to_string(plan_.requests_per_round),
                                       "--candidates", std::to_string(plan_.candidates)}));
  return wait_until_waiting({&ranker_}, {});
}

std::vector<Worker*> Cluster::trainers() {
  std::vector<Worker*> workers;
  for (Worker& worker : trainers_) workers.push_back(&worker);
  return workers;
}

Status Cluster::step(const std::vector<Worker*>& workers, const OnEvent& on_event) {
  for (Worker* worker : workers) {
    worker->waiting = false;
    worker->progress["fraction"] = 0;
    if (!worker->process->send_line("go")) return worker->process->wait();
  }
  return wait_until_waiting(workers, on_event);
}

Status Cluster::wait_until_waiting(const std::vector<Worker*>& workers, const OnEvent& on_event) {
  while (true) {
    std::vector<ChildProcess*> busy;
    for (Worker* worker : workers) {
      if (!idle(*worker)) busy.push_back(worker->process.get());
    }
    if (busy.empty()) return ok_status();
    for (const auto& server : servers_) busy.push_back(server.get());
    wait_for_output(busy);
    BE_RETURN_IF_ERROR(check_servers());
    for (Worker* worker : workers) {
      if (!idle(*worker)) BE_RETURN_IF_ERROR(read_events(*worker));
    }
    if (on_event) on_event(workers);
  }
}

Status Cluster::read_events(Worker& worker) {
  while (const std::optional<std::string> line = worker.process->next_line()) {
    nlohmann::json event = nlohmann::json::parse(*line, nullptr, false);
    const std::string kind = event.is_object() ? event.value("event", "") : "";
    if (kind == "waiting") {
      worker.waiting = true;
    } else if (kind == "progress" || kind == "epoch" || kind == "round") {
      worker.progress.update(event);
    } else if (kind == "result") {
      worker.result = std::move(event);
    } else {
      return error(Code::kInternal, "{} said '{}'", worker.process->name(), *line);
    }
  }
  if (worker.process->stdout_fd() >= 0) return ok_status();
  BE_RETURN_IF_ERROR(worker.process->wait());
  if (!worker.result.is_null()) return ok_status();
  return error(Code::kInternal, "{} ended without a result", worker.process->name());
}

Status Cluster::check_servers() {
  for (const auto& server : servers_) {
    if (server->stdout_fd() >= 0) continue;
    BE_RETURN_IF_ERROR(server->wait());
    return error(Code::kInternal, "{} ended too early", server->name());
  }
  return ok_status();
}

Status Cluster::stop() {
  for (const auto& server : servers_) server->signal(SIGTERM);
  for (const auto& server : servers_) BE_RETURN_IF_ERROR(server->wait());
  return ok_status();
}

}  // namespace be::apps
