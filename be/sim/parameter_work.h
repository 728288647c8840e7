// The parameter server of a seed: some processes serve, the others push to and fetch from one
// table, and a model knows what each key can be.
//
//   every push moves its keys by -1 (SGD, rate 1, gradient 1; rows begin at 0), and only one client
//   writes a key, so:      pushes acknowledged <= - value <= pushes begun
//
// A fetch is held to the pushes acknowledged before it began and those begun before it ended. After
// a server was killed its rows are gone: then only the rules of calls are checked. Those are: each
// operation ends exactly once, and in its time plus a bounded slack.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "be/ps/parameter_client.h"
#include "be/ps/parameter_server.h"
#include "be/sim/workload.h"

namespace be::sim {

class ParameterWork final : public Workload {
 public:
  explicit ParameterWork(Cluster& cluster);
  ~ParameterWork() override;

  void on_start(Process& process) override;
  void on_end(Process& process) override;
  void on_resume(Process& process, Nanoseconds length) override;
  void start() override;
  bool done() const override;
  std::string unfinished() const override;
  void check() override {}  // everything is checked as it is answered

 private:
  struct Count {
    uint32_t acknowledged = 0;
    uint32_t begun = 0;
  };
  struct Client {
    Process* process = nullptr;
    uint32_t number = 0;
    std::unique_ptr<ps::ParameterClient> parameters;
    const ps::RemoteTable* table = nullptr;
    Random random{0};
    uint32_t begun = 0;
    uint32_t ended = 0;
    uint32_t planned = 0;
    std::vector<Count> counts;  // by key of ours
  };
  struct Operation;

  ps::Key key_of(const Client& client, size_t index) const;
  void go_on(Client& client);
  void push(Client& client);
  void fetch(Client& client);
  void finish(const std::shared_ptr<Operation>& operation, const Status& status);
  void check_rows(const Operation& operation, const ps::FetchedRows& rows);
  void retry_later(Client& client);
  bool rows_may_be_lost() const;

  Cluster& cluster_;
  Simulation& simulation_;
  Random random_;
  uint32_t servers_ = 1;
  bool started_ = false;
  std::map<Process*, std::unique_ptr<ps::ParameterServer>> running_;  // looked up only
  std::vector<std::unique_ptr<Client>> clients_;
};

}  // namespace be::sim
