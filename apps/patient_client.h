// PatientClient: a ParameterClient on a driven node of its own, as a trainer or ranker uses it.
//
// A Fetch (or a question for figures) that fails because a server is gone, slow or has lost its
// tables is tried again until `patience` is over; a table that was created here is created again
// on a server that came back empty. A Push is never sent twice (it may have been applied): if it
// fails it is reported, counted as lost, and the work goes on. Each spell of failures is told on
// standard error, once when it begins and once when it ends.
//
// One thread, which drives the node.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "apps/operation_meter.h"
#include "apps/settings.h"
#include "be/ps/parameter_client.h"

namespace be::apps {

class PatientClient {
 public:
  // servers: "host:port" each. Everything must be there at first: patience is for later.
  static Result<std::unique_ptr<PatientClient>> connect(const Settings& settings,
                                                        const std::vector<std::string>& servers,
                                                        Nanoseconds patience);

  Status create_table(const ps::TableSpec& spec);
  Status open_table(const std::string& model, const std::string& name);
  const ps::TableSpec& spec() const { return table_->spec; }

  Result<ps::FetchedRows> fetch(std::span<const ps::Key> keys, OperationMeter& meter);

  // Waits while `max_outstanding` pushes are unanswered, then starts one. Gradients are copied.
  Status push(std::span<const ps::Key> keys, std::span<const float> gradients,
              size_t max_outstanding, OperationMeter& meter);
  void drain();  // until every push is answered

  void pause(Nanoseconds duration);  // goes on driving
  Time now() const { return node_->world().now(); }
  Node& node() { return *node_; }
  std::string transport() const;  // "softnic", of the first server's connection

  uint64_t retries() const { return retries_; }
  uint64_t lost_pushes() const { return lost_pushes_; }

  // CPU time of this process and all servers over a stretch of `operations`, to be added to
  // `meter`; not added if a server failed meanwhile (one that came back counts from zero).
  class CpuStretch {
   public:
    Status begin(PatientClient& client);
    Status end(size_t operations, OperationMeter& meter);

   private:
    PatientClient* client_ = nullptr;
    CpuTime before_;
    uint64_t retries_before_ = 0;
  };

  struct Memory {
    uint64_t own_peak_registered_bytes = 0;  // of this process alone
    uint64_t peak_registered_bytes = 0;      // with the servers
    uint64_t rows = 0;
  };
  Result<Memory> memory();  // of this process and all servers

 private:
  explicit PatientClient(Nanoseconds patience) : patience_(patience) {}

  template <typename T, typename Call>
  Result<T> try_patiently(Call call);
  Result<ps::StatsResponse> stats(size_t server);
  Result<CpuTime> cpu_time();
  void note_failure(const Status& status);
  void note_success();
  void restore_table();

  const Nanoseconds patience_;
  std::unique_ptr<Node> node_;
  const ps::RemoteTable* table_ = nullptr;
  std::optional<ps::TableSpec> created_;
  size_t outstanding_ = 0;
  uint64_t retries_ = 0;
  uint64_t lost_pushes_ = 0;
  std::optional<Time> failing_since_;
  std::unique_ptr<ps::ParameterClient> client_;  // ends first: its callbacks use the above
};

}  // namespace be::apps
