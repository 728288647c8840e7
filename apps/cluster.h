// Cluster: the processes of one demonstration over one transport: servers, then trainers, then a
// ranker.
//
// Workers (trainers, ranker) run with --paced --events: each says "waiting", gets a go, works for
// one stretch (an epoch, a round) and says "waiting" again or, at its end, "result". step()
// is one stretch of some of them. So two clusters can work in turns and meet the same machine.
//
//   start_servers -> start_trainers -> step(trainers) ... -> start_ranker -> step(ranker) ... ->
//   stop
//
// A child that dies, or says what nobody understands, ends the step with a Status that names it
// and quotes its last lines. All children end with this object. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "apps/child_process.h"
#include "be/base/status.h"

namespace be::apps {

struct ClusterPlan {
  std::string program;
  std::string data;
  uint32_t servers = 4;
  uint32_t trainers = 2;
  uint32_t epochs = 6;
  size_t batch = 256;
  uint64_t seed = 1;
  size_t candidates = 100;
  uint32_t rounds = 10;
  size_t requests_per_round = 2000;
  size_t pushes_per_round = 300;
  std::vector<std::string> settings;  // for every child: --config, --set
};

struct Worker {
  std::unique_ptr<ChildProcess> process;
  bool waiting = false;
  nlohmann::json progress;  // the latest of every field of "progress", "epoch", "round"
  nlohmann::json result;    // null until it has ended
};

class Cluster {
 public:
  Cluster(const ClusterPlan& plan, std::string transport)
      : plan_(plan), transport_(std::move(transport)) {}

  Status start_servers();
  Status start_trainers();
  Status start_ranker();

  // One stretch of each of `workers`; `on_event` is called after every event.
  using OnEvent = std::function<void(const std::vector<Worker*>& workers)>;
  Status step(const std::vector<Worker*>& workers, const OnEvent& on_event);

  // Ends the servers cleanly; the workers have ended.
  Status stop();

  const std::string& transport() const { return transport_; }
  std::vector<Worker*> trainers();
  Worker& trainer(size_t index) { return trainers_[index]; }
  Worker& ranker() { return ranker_; }

 private:
  Result<Worker> start_worker(const std::string& name, std::vector<std::string> arguments);
  Status wait_until_waiting(const std::vector<Worker*>& workers, const OnEvent& on_event);
  Status read_events(Worker& worker);
  Status check_servers();

  const ClusterPlan& plan_;
  const std::string transport_;
  std::vector<std::unique_ptr<ChildProcess>> servers_;
  std::string addresses_;  // "127.0.0.1:40001,127.0.0.1:40002"
  std::vector<Worker> trainers_;
  Worker ranker_;
};

}  // namespace be::apps
