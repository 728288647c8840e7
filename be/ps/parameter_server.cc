#include "be/ps/parameter_server.h"

#include <cmath>
#include <utility>

#include "be/ps/control_service.h"
#include "be/ps/push_strands.h"
#include "be/ps/server_core.h"
#include "be/rpc/protobuf.h"

namespace be::ps {
namespace {

// 8,192 keys, about a millisecond: longer Fetches would hold up the I/O thread.
constexpr size_t kInlineFetchBytes = 64 << 10;

Status check_dim(const Table& table, uint32_t dim) {
  if (dim == table.spec().dim) return ok_status();
  return error(Code::kInvalidArgument, "gradients of dim {} for table '{}' of dim {}", dim,
               table.spec().full_name(), table.spec().dim);
}

// One infinite or undefined gradient would spoil its row for ever.
Status check_finite(const PushRequest& request) {
  for (size_t i = 0; i < request.gradients.size(); ++i) {
    const float gradient = request.gradients[i];
    if (std::isfinite(gradient)) continue;
    return error(Code::kInvalidArgument, "gradient of key {} is {} at {}",
                 request.keys[i / request.dim], gradient, i % request.dim);
  }
  return ok_status();
}

class ParameterServerImpl final : public ParameterServer {
 public:
  ParameterServerImpl(Node& node, const View& view, const ParameterServerOptions& options)
      : node_(node),
        core_{view, options.server_index,
              limits_within(options.limits, node.pool().stats().cap_bytes),
              TableSet(options.max_tables)},
        control_(core_, node.pool()) {}

  Status start(const ParameterServerOptions& options);
  Status listen(const Address& address) override { return server_->listen(address); }
  const Address& address() const override { return server_->address(); }

 private:
  void on_fetch(rpc::ServerCall call);
  void answer_fetch(rpc::ServerCall call);
  void on_push(rpc::ServerCall call);
  Result<Buffer> fetch(std::span<const uint8_t> frame);
  Result<PushRequest> validate_push(std::span<const uint8_t> frame, Table*& table);
  void refuse(rpc::ServerCall& call, const Status& status);

  Node& node_;
  ServerCore core_;
  ControlService control_;
  std::unique_ptr<PushStrands> strands_;
  std::unique_ptr<WorkerPool> long_fetches_;
  std::unique_ptr<rpc::Server> server_;  // ends first: no call reaches the others any more
};

Status ParameterServerImpl::start(const ParameterServerOptions& options) {
  BE_ASSIGN_OR_RETURN(strands_,
                      PushStrands::start(node_.world(), options.push_threads, node_.pool(), core_));
  BE_ASSIGN_OR_RETURN(long_fetches_, node_.world().executor().start_workers("ps-fetch", 1));
  BE_ASSIGN_OR_RETURN(server_, rpc::Server::create(node_, options.rpc));
  BE_RETURN_IF_ERROR(
      server_->add_method(kFetchMethod, rpc::RunOn::kIoThread,
                          [this](rpc::ServerCall call) { on_fetch(std::move(call)); }));
  BE_RETURN_IF_ERROR(
      server_->add_method(kPushMethod, rpc::RunOn::kIoThread,
                          [this](rpc::ServerCall call) { on_push(std::move(call)); }));
  return rpc::add_service(*server_, &control_);
}

void ParameterServerImpl::refuse(rpc::ServerCall& call, const Status& status) {
  core_.counters.refused.fetch_add(1, std::memory_order_relaxed);
  call.fail(status);
}

void ParameterServerImpl::on_fetch(rpc::ServerCall call) {
  if (call.body().size() <= kInlineFetchBytes) return answer_fetch(std::move(call));
  long_fetches_->submit(
      [this, call = std::move(call)]() mutable { answer_fetch(std::move(call)); });
}

void ParameterServerImpl::answer_fetch(rpc::ServerCall call) {
  Result<Buffer> response = fetch(call.body().bytes());
  if (!response.ok()) return refuse(call, response.status());
  call.reply({{}, std::move(*response)});
}

Result<Buffer> ParameterServerImpl::fetch(std::span<const uint8_t> frame) {
  BE_ASSIGN_OR_RETURN(const FetchRequest request, parse_fetch_request(frame, core_.limits));
  BE_RETURN_IF_ERROR(core_.check_placement(request.view_version, request.keys));
  BE_ASSIGN_OR_RETURN(const Table* table, core_.tables.find(request.table));
  const size_t keys = request.keys.size();
  const uint32_t dim = table->spec().dim;
  const RowsLayout layout = fetch_response_layout(keys, dim);
  BE_RETURN_IF_ERROR(check_request("Fetch response", keys, layout.bytes, core_.limits));

  BE_ASSIGN_OR_RETURN(Buffer response, node_.pool().allocate_buffer(layout.bytes));
  begin_fetch_response(response.bytes(), static_cast<uint32_t>(keys), dim);
  const std::span<float> values(reinterpret_cast<float*>(response.data() + layout.values),
                                keys * dim);
  const size_t missing =
      table->read(request.keys, values, response.bytes().subspan(layout.missing));
  core_.counters.fetches.fetch_add(1, std::memory_order_relaxed);
  core_.counters.fetched_keys.fetch_add(keys, std::memory_order_relaxed);
  core_.counters.missing_keys.fetch_add(missing, std::memory_order_relaxed);
  return response;
}

Result<PushRequest> ParameterServerImpl::validate_push(std::span<const uint8_t> frame,
                                                       Table*& table) {
  BE_ASSIGN_OR_RETURN(const PushRequest request, parse_push_request(frame, core_.limits));
  BE_RETURN_IF_ERROR(core_.check_placement(request.view_version, request.keys));
  BE_ASSIGN_OR_RETURN(table, core_.tables.find(request.table));
  BE_RETURN_IF_ERROR(check_dim(*table, request.dim));
  BE_RETURN_IF_ERROR(check_finite(request));
  return request;
}

void ParameterServerImpl::on_push(rpc::ServerCall call) {
  Table* table = nullptr;
  const Result<PushRequest> request = validate_push(call.body().bytes(), table);
  if (!request.ok()) return refuse(call, request.status());
  strands_->submit({std::move(call), *request, table});
}

}  // namespace

Result<std::unique_ptr<ParameterServer>> ParameterServer::create(
    Node& node, const ParameterServerOptions& options) {
  BE_ASSIGN_OR_RETURN(const View view, View::uniform(options.view_version, options.server_count));
  if (options.server_index >= options.server_count) {
    return error(Code::kInvalidArgument, "server index {} of {} servers: they are 0 .. {}",
                 options.server_index, options.server_count, options.server_count - 1);
  }
  if (options.push_threads < 1) {
    return error(Code::kInvalidArgument, "push_threads {}: at least 1", options.push_threads);
  }
  auto server = std::make_unique<ParameterServerImpl>(node, view, options);
  BE_RETURN_IF_ERROR(server->start(options));
  return std::unique_ptr<ParameterServer>(std::move(server));
}

}  // namespace be::ps
