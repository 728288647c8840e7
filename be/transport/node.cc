#include "be/transport/node.h"

#include <algorithm>
#include <utility>

#include "be/base/log.h"
#include "be/softnic/softnic_device.h"
#include "be/transport/connector.h"
#include "be/transport/listener_impl.h"
#include "be/transport/node_impl.h"
#include "be/transport/server_handshake.h"
#include "be/verbs/hardware_device.h"

namespace be {
namespace {

constexpr size_t kMaxIoThreads = 256;
constexpr Nanoseconds kShutdownBound = 3s;

Status check(const NodeOptions& options) {
  if (options.io_threads < 1 || options.io_threads > kMaxIoThreads) {
    return error(Code::kInvalidArgument, "transport.io_threads is {}, must be 1 to {}",
                 options.io_threads, kMaxIoThreads);
  }
  if (options.driven && options.io_threads != 1) {
    return error(Code::kInvalidArgument, "a driven node has one I/O thread, not {}",
                 options.io_threads);
  }
  if (options.max_message_bytes == 0) {
    return Status(Code::kInvalidArgument, "transport.max_message_bytes is 0");
  }
  if (options.spin < 0ns || options.handshake_timeout <= 0ns) {
    return Status(Code::kInvalidArgument, "transport.spin or handshake_timeout is negative");
  }
  return {};
}

}  // namespace

std::string_view transport_name(TransportKind kind) {
  switch (kind) {
    case TransportKind::kTcp:
      return "tcp";
    case TransportKind::kHardware:
      return "hardware";
    case TransportKind::kSoftnic:
      return "softnic";
    case TransportKind::kSimulated:
      return "simulated";
  }
  return "unknown transport";
}

Result<std::unique_ptr<Node>> Node::create(World& world, const NodeOptions& options) {
  BE_RETURN_IF_ERROR(check(options));
  BE_ASSIGN_OR_RETURN(std::unique_ptr<RegisteredPool> pool, RegisteredPool::create(options.memory));
  auto node = std::make_unique<NodeImpl>(world, options, std::move(pool));
  BE_RETURN_IF_ERROR(node->find_devices());
  BE_RETURN_IF_ERROR(node->start());
  return std::unique_ptr<Node>(std::move(node));
}

Result<std::unique_ptr<Node>> Node::create(World& world, const NodeOptions& options,
                                           std::vector<std::unique_ptr<Device>> devices) {
  BE_RETURN_IF_ERROR(check(options));
  BE_ASSIGN_OR_RETURN(std::unique_ptr<RegisteredPool> pool, RegisteredPool::create(options.memory));
  auto node = std::make_unique<NodeImpl>(world, options, std::move(pool));
  BE_RETURN_IF_ERROR(node->use_devices(std::move(devices)));
  BE_RETURN_IF_ERROR(node->start());
  return std::unique_ptr<Node>(std::move(node));
}

NodeImpl::NodeImpl(World& world, const NodeOptions& options, std::unique_ptr<RegisteredPool> pool)
    : world_(world),
      options_(options),
      pool_(std::move(pool)),
      memory_release_(
          std::make_unique<MemoryRelease>(world, *pool_, options.memory_release_interval)),
      context_{world_, *pool_, options_, {}},
      table_(options.io_threads) {
  options_.engine.max_message_bytes =
      std::min(options_.engine.max_message_bytes, options_.max_message_bytes);
}

Status NodeImpl::start() {
  BE_RETURN_IF_ERROR(options_.engine.check());
  for (size_t i = 0; i < options_.io_threads; ++i) {
    BE_ASSIGN_OR_RETURN(std::unique_ptr<IoThreadImpl> thread,
                        IoThreadImpl::create(world_, *pool_,
                                             {.index = i,
                                              .driven = options_.driven,
                                              .spin_forever = options_.spin_forever,
                                              .spin = options_.spin}));
    threads_.push_back(std::move(thread));
    half_open_.push_back(std::make_unique<HalfOpen>());
    peers_.push_back(std::make_unique<PeerTable>(context_, *threads_.back()));
  }
  memory_release_->start(*threads_.front());
  if (options_.driven) return {};
  for (const auto& thread : threads_) BE_RETURN_IF_ERROR(thread->start());
  return {};
}

Status NodeImpl::use_devices(std::vector<std::unique_ptr<Device>> devices) {
  for (std::unique_ptr<Device>& device : devices) {
    BE_RETURN_IF_ERROR(add_device(std::move(device), true));
  }
  return {};
}

const char* NodeImpl::broken_invariant() const {
  for (const auto& thread : threads_) {
    if (const char* broken = thread->broken_invariant()) return broken;
  }
  return nullptr;
}

Status NodeImpl::find_devices() {
  const TransportChoice choice = options_.transport;
  const uint64_t registered_bytes = pool_->stats().cap_bytes;
  if (allows(choice, DeviceKind::kSoftnic)) {
    BE_RETURN_IF_ERROR(
        add_device(open_softnic(options_.softnic), choice == TransportChoice::kSoftnic));
  }
  if (allows(choice, DeviceKind::kHardware)) {
    for (std::unique_ptr<Device>& device :
         open_hardware_devices(options_.hardware, registered_bytes)) {
      BE_RETURN_IF_ERROR(add_device(std::move(device), choice == TransportChoice::kRdma));
    }
  }
  if (choice == TransportChoice::kRdma && devices_.empty()) {
    std::string why;
    for (const FoundDevice& found : list_hardware_devices(registered_bytes)) {
      why += fmt::format("; {}: {}", found.name, found.why);
    }
    return error(Code::kUnsupported, "no usable RDMA device{}", why);
  }
  return {};
}

// A device that cannot be had is an error only if it was asked for by name.
Status NodeImpl::add_device(Result<std::unique_ptr<Device>> device, bool required) {
  Status status = device.status();
  if (status.ok()) {
    const Result<size_t> index = pool_->add_device(device->get());
    status = index.status();
    if (status.ok()) {
      context_.devices.push_back({device->get(), *index});
      devices_.push_back(*std::move(device));
      return {};
    }
  }
  if (required) return status;
  log_info("device not used: {}", status.to_string());
  return {};
}

// Its threads are not in this process, and may have been in the middle of anything.
void NodeImpl::abandon_all() {
  abandon(std::move(threads_));
  abandon(std::move(peers_));
  abandon(std::move(half_open_));
  abandon(std::move(memory_release_));
  abandon(std::move(pool_));
  abandon(std::move(devices_));
}

NodeImpl::~NodeImpl() {
  if (fork_guard_.in_child()) {
    abandon_all();
    return;
  }
  const Status why(Code::kClosed, "the node is shut down");
  for (const auto& thread : threads_) thread->ask_to_shut_down(why, kShutdownBound);
  for (const auto& thread : threads_) {
    if (!thread->finish_shutdown()) {
      log_error("connections were left when the node was shut down");
    }
  }
}

void NodeImpl::connect(const Address& remote, const SocketOptions& options,
                       SocketHandler* handler) {
  if (fork_guard_.in_child()) {
    return report_never_opened(*threads_.front(), remote, handler, forked_status("the node"));
  }
  IoThreadImpl& thread = *threads_[table_.thread_of(remote)];
  const Time deadline = saturating_add(world_.now(), options.connect_timeout);
  const TransportChoice choice = options.transport.value_or(options_.transport);
  PeerTable& peers = *peers_[thread.index()];
  thread.post([&thread, &peers, remote, choice, deadline, handler] {
    if (thread.shutting_down()) {
      const Status why(Code::kClosed, "the node is shut down");
      return report_never_opened(thread, remote, handler, why);
    }
    peers.connect(remote, choice, deadline, handler);
  });
}

Result<std::unique_ptr<Listener>> NodeImpl::listen(const Address& address, Acceptor acceptor) {
  if (fork_guard_.in_child()) return forked_status("the node");
  if (options_.secret.empty() && !address.is_loopback()) {
    log_warn("listening on {} without a shared secret: whoever reaches it is trusted",
             address.to_string());
  }
  return ListenerImpl::create(
      context_, *threads_.front(), address, std::move(acceptor),
      [this](StreamFd fd, const Address& remote, const std::shared_ptr<Acceptance>& acceptance) {
        take_connection(std::move(fd), remote, acceptance);
      });
}

IoThread& NodeImpl::thread_for(const Address& remote) {
  return *threads_[table_.thread_of(remote)];
}

void NodeImpl::take_connection(StreamFd fd, const Address& remote,
                               const std::shared_ptr<Acceptance>& acceptance) {
  const size_t index = next_thread_.fetch_add(1, std::memory_order_relaxed) % threads_.size();
  IoThreadImpl& thread = *threads_[index];
  thread.post([this, &thread, index, fd = std::move(fd), remote, acceptance]() mutable {
    if (thread.shutting_down()) return;
    thread
        .adopt(std::make_unique<ServerHandshake>(context_, thread, *half_open_[index],
                                                 std::move(fd), remote, acceptance))
        ->start();
  });
}

}  // namespace be
