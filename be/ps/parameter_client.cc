#include "be/ps/parameter_client.h"

#include <optional>
#include <utility>

#include "be/ps/control_service.h"
#include "be/ps/operations.h"
#include "be/rpc/protobuf.h"

namespace be::ps {
namespace {

const rpc::MethodId kFetchId = rpc::method_id(kFetchMethod);
const rpc::MethodId kPushId = rpc::method_id(kPushMethod);

// The context is made only for a failure: this is on the path of every Fetch.
Status of_table(Status status, const RemoteTable& table) {
  return status.ok() ? std::move(status) : status.with_context("table '" + table.name + "'");
}

// Starts an operation by `start(callback)` and waits for its callback.
template <typename T, typename Start>
Result<T> wait_for(Node& node, Start start) {
  std::optional<Result<T>> result;
  if (node.options().driven) {
    BE_RETURN_IF_ERROR(start([&](Result<T> answer) { result.emplace(std::move(answer)); }));
    node.thread(0).run_until([&] { return result.has_value(); }, kNever,
                             node.options().spin_forever);
  } else {
    const std::unique_ptr<Gate> ended = node.world().executor().make_gate();
    BE_RETURN_IF_ERROR(start([&](Result<T> answer) {
      result.emplace(std::move(answer));
      ended->open();
    }));
    ended->wait();
  }
  return *std::move(result);
}

}  // namespace

ParameterClient::ParameterClient(Node& node, const ParameterClientOptions& options,
                                 const View& view)
    : node_(node),
      limits_(limits_within(options.limits, node.pool().stats().cap_bytes)),
      view_(view),
      servers_(options.servers) {
  for (const Address& server : servers_) {
    channels_.push_back(rpc::Channel::create(node, server, options.channel));
  }
}

ParameterClient::~ParameterClient() = default;

Result<std::unique_ptr<ParameterClient>> ParameterClient::connect(
    Node& node, const ParameterClientOptions& options) {
  BE_ASSIGN_OR_RETURN(
      const View view,
      View::uniform(options.view_version, static_cast<uint32_t>(options.servers.size())));
  std::unique_ptr<ParameterClient> client(new ParameterClient(node, options, view));
  for (size_t server = 0; server < options.servers.size(); ++server) {
    BE_RETURN_IF_ERROR(client->check_server(server));
  }
  return client;
}

template <typename Request, typename Response, typename Method>
Status ParameterClient::control(size_t server, Method method, const Request& request,
                                Response& response) {
  rpc::ProtobufChannel channel(*channels_[server]);
  ParameterService::Stub stub(&channel);
  rpc::Controller controller;
  (stub.*method)(&controller, &request, &response, nullptr);
  return controller.status().with_context(
      fmt::format("server {} ({})", server, servers_[server].to_string()));
}

Status ParameterClient::check_server(size_t index) {
  DescribeServerResponse is;
  BE_RETURN_IF_ERROR(
      control(index, &ParameterService::Stub::DescribeServer, DescribeServerRequest(), is));
  if (is.server_index() == index && is.server_count() == view_.servers() &&
      is.view_version() == view_.version() && is.virtual_shards() == kVirtualShards) {
    return ok_status();
  }
  return error(Code::kInvalidArgument,
               "{} is server {} of {} (view {}, {} virtual shards), but was listed as server {} of "
               "{} (view {}, {} virtual shards)",
               servers_[index].to_string(), is.server_index(), is.server_count(), is.view_version(),
               is.virtual_shards(), index, view_.servers(), view_.version(), kVirtualShards);
}

const RemoteTable* ParameterClient::remember(const TableSpec& spec) {
  const std::lock_guard lock(mutex_);
  for (const RemoteTable& table : tables_) {
    if (table.spec == spec) return &table;
  }
  tables_.push_back({spec, spec.id(), spec.full_name()});
  return &tables_.back();
}

Result<const RemoteTable*> ParameterClient::create_table(const TableSpec& spec) {
  BE_RETURN_IF_ERROR(spec.check());
  CreateTableRequest request;
  *request.mutable_table() = to_properties(spec);
  for (size_t server = 0; server < servers_.size(); ++server) {
    CreateTableResponse response;
    BE_RETURN_IF_ERROR(control(server, &ParameterService::Stub::CreateTable, request, response));
  }
  return remember(spec);
}

Result<const RemoteTable*> ParameterClient::open_table(const std::string& model,
                                                       const std::string& name) {
  DescribeTableRequest request;
  request.set_model(model);
  request.set_name(name);
  std::optional<TableSpec> spec;
  for (size_t server = 0; server < servers_.size(); ++server) {
    DescribeTableResponse response;
    BE_RETURN_IF_ERROR(control(server, &ParameterService::Stub::DescribeTable, request, response));
    const TableSpec found = to_spec(response.table());
    BE_RETURN_IF_ERROR(found.check().with_context(servers_[server].to_string()));
    if (!spec) spec = found;
    if (found == *spec) continue;
    return error(Code::kInvalidArgument, "servers differ: {} has {}; {} has {}",
                 servers_[0].to_string(), spec->to_string(), servers_[server].to_string(),
                 found.to_string());
  }
  return remember(*spec);
}

Result<StatsResponse> ParameterClient::stats(size_t server) {
  StatsResponse response;
  BE_RETURN_IF_ERROR(control(server, &ParameterService::Stub::Stats, StatsRequest(), response));
  return response;
}

Status ParameterClient::fetch(const RemoteTable& table, std::span<const Key> keys,
                              const rpc::CallOptions& options, FetchCallback callback) {
  BE_RETURN_IF_ERROR(of_table(check_request("Fetch", keys.size(), 0, limits_), table));
  const auto operation = std::make_shared<FetchOperation>(table, keys, view_, servers_);
  BE_RETURN_IF_ERROR(of_table(operation->prepare(node_.pool(), view_.version(), limits_), table));
  operation->on_finish(std::move(callback));
  operation->send(channels_, kFetchId, options);
  return ok_status();
}

Status ParameterClient::push(const RemoteTable& table, std::span<const Key> keys,
                             std::span<const float> gradients, const rpc::CallOptions& options,
                             PushCallback callback) {
  BE_RETURN_IF_ERROR(of_table(check_request("Push", keys.size(), 0, limits_), table));
  if (gradients.size() != keys.size() * table.spec.dim) {
    return error(Code::kInvalidArgument, "table '{}': Push: {} gradients for {} keys of dim {}",
                 table.name, gradients.size(), keys.size(), table.spec.dim);
  }
  const auto operation = std::make_shared<PushOperation>(table, keys, view_, servers_);
  BE_RETURN_IF_ERROR(
      of_table(operation->prepare(node_.pool(), view_.version(), limits_, gradients), table));
  operation->on_finish(std::move(callback));
  operation->send(channels_, kPushId, options);
  return ok_status();
}

Result<FetchedRows> ParameterClient::fetch_and_wait(const RemoteTable& table,
                                                    std::span<const Key> keys,
                                                    const rpc::CallOptions& options) {
  return wait_for<FetchedRows>(node_, [&](FetchCallback callback) {
    return fetch(table, keys, options, std::move(callback));
  });
}

Result<PushSummary> ParameterClient::push_and_wait(const RemoteTable& table,
                                                   std::span<const Key> keys,
                                                   std::span<const float> gradients,
                                                   const rpc::CallOptions& options) {
  return wait_for<PushSummary>(node_, [&](PushCallback callback) {
    return push(table, keys, gradients, options, std::move(callback));
  });
}

}  // namespace be::ps
