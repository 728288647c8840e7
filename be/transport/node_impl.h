// NodeImpl: the parts of a Node and who gets what: I/O threads, the table of remote addresses,
// accepted connections.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "be/base/fork.h"
#include "be/transport/address_table.h"
#include "be/transport/half_open.h"
#include "be/transport/io_thread_impl.h"
#include "be/transport/memory_release.h"
#include "be/transport/node.h"
#include "be/transport/peer_table.h"
#include "be/transport/stream_fd.h"
#include "be/transport/transport_context.h"

namespace be {

class NodeImpl final : public Node {
 public:
  NodeImpl(World& world, const NodeOptions& options, std::unique_ptr<RegisteredPool> pool);
  ~NodeImpl() override;

  Status find_devices();
  Status use_devices(std::vector<std::unique_ptr<Device>> devices);
  Status start();

  void connect(const Address& remote, const SocketOptions& options,
               SocketHandler* handler) override;
  Result<std::unique_ptr<Listener>> listen(const Address& address, Acceptor acceptor) override;
  RegisteredPool& pool() override { return *pool_; }
  World& world() override { return world_; }
  const NodeOptions& options() const override { return options_; }
  size_t thread_count() const override { return threads_.size(); }
  IoThread& thread(size_t index) override { return *threads_[index]; }
  const char* broken_invariant() const override;
  IoThread& thread_for(const Address& remote) override;

 private:
  Status add_device(Result<std::unique_ptr<Device>> device, bool required);
  void take_connection(StreamFd fd, const Address& remote,
                       const std::shared_ptr<Acceptance>& acceptance);

  void abandon_all();

  const ForkGuard fork_guard_;
  // In the order in which they rest on each other; destroyed from the last to the first.
  World& world_;
  NodeOptions options_;
  std::vector<std::unique_ptr<Device>> devices_;
  std::unique_ptr<RegisteredPool> pool_;
  std::unique_ptr<MemoryRelease> memory_release_;
  TransportContext context_;
  std::vector<std::unique_ptr<HalfOpen>> half_open_;  // one per thread
  std::vector<std::unique_ptr<PeerTable>> peers_;     // one per thread
  std::vector<std::unique_ptr<IoThreadImpl>> threads_;
  AddressTable table_;
  std::atomic<size_t> next_thread_ = 0;  // for accepted connections
};

}  // namespace be
