// ParameterClient: fetch rows from, and push gradients to, tables that are spread over servers.
//
//   fetch(keys) -> KeyPlan -> one sub-request a server -> answers -> rows in the caller's order
//   push(keys, gradients) -> sums of equal keys -> one sub-request a server -> acknowledgements
//
//   auto client = ParameterClient::connect(node, {.servers = {a, b, c, d}});
//   auto table = client->create_table({...});        // on every server; again does no harm
//   auto rows = client->fetch_and_wait(**table, keys, {});
//
// Asynchronous forms return a failure and never call back, or call back exactly once, on an I/O
// thread, before the call's deadline plus the channel's slack. A failed operation names the
// table, the server and the cause. A failed push tells how many servers have applied their
// part: nothing is resent, nothing is lost in silence. A server that was restarted has no tables:
// its calls fail with kNotFound until create_table() is called again.
//
// Thread-safe; blocking forms are for a driven node's owner thread or any thread that is not an
// I/O thread. `node` must outlive the client; destruction ends outstanding operations with
// kCancelled.
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "be/ps/parameter_service.pb.h"
#include "be/ps/table_spec.h"
#include "be/ps/view.h"
#include "be/ps/wire.h"
#include "be/rpc/channel.h"

namespace be::ps {

struct ParameterClientOptions {
  std::vector<Address> servers{};  // in the order of their indices in the view
  uint32_t view_version = 1;
  rpc::ChannelOptions channel{};
  Limits limits{};
};

// A table as clients know it; owned by the ParameterClient and good as long as it lives.
struct RemoteTable {
  TableSpec spec;
  TableId id;
  std::string name;  // "model/table"
};

struct FetchedRows {
  uint32_t dim = 0;
  std::vector<float> values;  // dim for each of the caller's keys, in the caller's order
  std::vector<bool> missing;  // has no row yet: the values are the initial ones
  size_t wire_bytes = 0;      // of all frames, both ways

  std::span<const float> row(size_t index) const {
    return std::span(values).subspan(index * dim, dim);
  }
};

struct PushSummary {
  size_t keys = 0;     // after summing equal ones
  size_t created = 0;  // rows made
  size_t wire_bytes = 0;
};

using FetchCallback = UniqueFunction<void(Result<FetchedRows>)>;
using PushCallback = UniqueFunction<void(Result<PushSummary>)>;

class ParameterClient {
 public:
  // Asks every server who it is (blocking) and refuses a list that does not match the view.
  static Result<std::unique_ptr<ParameterClient>> connect(Node& node,
                                                          const ParameterClientOptions& options);
  ~ParameterClient();

  // Blocking. create: on every server, found there or made. open: must be there, alike.
  Result<const RemoteTable*> create_table(const TableSpec& spec);
  Result<const RemoteTable*> open_table(const std::string& model, const std::string& name);
  Result<StatsResponse> stats(size_t server);  // blocking
  const std::vector<Address>& servers() const { return servers_; }
  std::optional<TransportKind> transport(size_t server) const {  // nothing while not connected
    return channels_[server]->transport();
  }

  // The keys and gradients are copied before it returns.
  Status fetch(const RemoteTable& table, std::span<const Key> keys, const rpc::CallOptions& options,
               FetchCallback callback);
  // gradients: dim for each key. Gradients of equal keys are added in the caller's order.
  Status push(const RemoteTable& table, std::span<const Key> keys, std::span<const float> gradients,
              const rpc::CallOptions& options, PushCallback callback);

  Result<FetchedRows> fetch_and_wait(const RemoteTable& table, std::span<const Key> keys,
                                     const rpc::CallOptions& options);
  Result<PushSummary> push_and_wait(const RemoteTable& table, std::span<const Key> keys,
                                    std::span<const float> gradients,
                                    const rpc::CallOptions& options);

 private:
  ParameterClient(Node& node, const ParameterClientOptions& options, const View& view);

  // One call of `method` (a ParameterService::Stub's) to one server, waited for.
  template <typename Request, typename Response, typename Method>
  Status control(size_t server, Method method, const Request& request, Response& response);
  Status check_server(size_t index);
  const RemoteTable* remember(const TableSpec& spec);

  Node& node_;
  const Limits limits_;
  const View view_;
  const std::vector<Address> servers_;
  std::mutex mutex_;
  std::deque<RemoteTable> tables_;                       // guarded by mutex_; elements never move
  std::vector<std::unique_ptr<rpc::Channel>> channels_;  // end first: callbacks use the above
};

}  // namespace be::ps
