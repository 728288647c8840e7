#include "be/rpc/server.h"

#include <algorithm>
#include <utility>

#include "be/base/fork.h"
#include "be/rpc/frame.h"
#include "be/rpc/server_connection.h"
#include "be/rpc/server_core.h"
#include "be/transport/run_on.h"

namespace be::rpc {
namespace {

auto first_not_below(std::vector<ServerMethod>& methods, MethodId id) {
  return std::lower_bound(methods.begin(), methods.end(), id,
                          [](const ServerMethod& m, MethodId value) { return m.id < value; });
}

}  // namespace

ServerCore::ServerCore(Node& server_node, const ServerOptions& server_options)
    : node(server_node),
      options(server_options),
      shards(std::make_unique<Shard[]>(server_node.thread_count())),
      shard_count(server_node.thread_count()) {
  for (size_t i = 0; i < shard_count; ++i) shards[i].thread = &server_node.thread(i);
}

const ServerMethod* ServerCore::find(MethodId id) const {
  const auto it =
      std::lower_bound(methods.begin(), methods.end(), id,
                       [](const ServerMethod& m, MethodId value) { return m.id < value; });
  return it != methods.end() && it->id == id ? &*it : nullptr;
}

ServerCore::Shard* ServerCore::shard_of(const IoThread& thread) {
  for (size_t i = 0; i < shard_count; ++i) {
    if (shards[i].thread == &thread) return &shards[i];
  }
  return nullptr;
}

uint32_t ServerCore::in_progress() const {
  uint32_t sum = 0;
  for (size_t i = 0; i < shard_count; ++i) {
    sum += shards[i].in_progress.load(std::memory_order_relaxed);
  }
  return sum;
}

class ServerImpl final : public Server {
 public:
  ServerImpl(Node& node, const ServerOptions& options)
      : core_(std::make_shared<ServerCore>(node, options)) {}
  ~ServerImpl() override;

  Status add_method(std::string_view full_name, RunOn run_on, Handler handler) override;
  Status listen(const Address& address) override;
  const Address& address() const override { return address_; }
  Node& node() override { return core_->node; }

 private:
  const ForkGuard fork_guard_;
  std::shared_ptr<ServerCore> core_;
  std::unique_ptr<WorkerPool> workers_;
  std::unique_ptr<Listener> listener_;
  Address address_;
};

ServerImpl::~ServerImpl() {
  if (fork_guard_.in_child()) {  // its shards name connections
    abandon(std::move(core_));
    return;
  }
  listener_.reset();
  core_->shutting_down = true;  // before the shards: what is accepted from now on is refused
  for (size_t i = 0; i < core_->shard_count; ++i) {
    ServerCore::Shard& shard = core_->shards[i];
    run_on(*shard.thread, [&shard] {
      const auto open = shard.connections;  // closing may change the list
      for (ServerConnection* connection : open) connection->close();
    });
  }
  // From here on no handler starts. Connections and retained calls may keep the core.
  workers_.reset();
  core_->no_memory_text.reset();
  core_->workers = nullptr;
  core_->methods.clear();
}

Status ServerImpl::add_method(std::string_view full_name, RunOn run_on, Handler handler) {
  if (listener_ != nullptr) {
    return error(Code::kInvalidArgument, "method {} is added after listen()", full_name);
  }
  const MethodId id = method_id(full_name);
  const auto place = first_not_below(core_->methods, id);
  if (place != core_->methods.end() && place->id == id) {
    return error(Code::kAlreadyExists, "method {} has the hash of method {}: {:#010x}", full_name,
                 place->name, id);
  }
  core_->methods.insert(place, {id, std::string(full_name), run_on, std::move(handler)});
  return {};
}

Status ServerImpl::listen(const Address& address) {
  if (fork_guard_.in_child()) return forked_status("the server");
  if (listener_ != nullptr) {
    return error(Code::kInvalidArgument, "the server listens on {} already", address_.to_string());
  }
  const bool needs_workers =
      std::any_of(core_->methods.begin(), core_->methods.end(),
                  [](const ServerMethod& m) { return m.run_on == RunOn::kWorkers; });
  if (needs_workers && workers_ == nullptr) {
    BE_ASSIGN_OR_RETURN(workers_, core_->node.world().executor().start_workers(
                                      "be-rpc", core_->options.worker_threads));
    core_->workers = workers_.get();
  }
  if (!core_->no_memory_text) core_->no_memory_text = make_no_memory_text(core_->node.pool());
  BE_ASSIGN_OR_RETURN(listener_, core_->node.listen(address, [core = core_](Socket& socket) {
    return ServerConnection::accept(core, socket);
  }));
  address_ = listener_->address();
  return {};
}

Result<std::unique_ptr<Server>> Server::create(Node& node, const ServerOptions& options) {
  if (options.worker_threads < 1) {
    return error(Code::kInvalidArgument, "worker_threads is {}: at least 1",
                 options.worker_threads);
  }
  if (options.max_in_progress < 1) {
    return error(Code::kInvalidArgument, "max_in_progress is 0: no call could ever be taken");
  }
  std::unique_ptr<Server> server = std::make_unique<ServerImpl>(node, options);
  return server;
}

}  // namespace be::rpc
