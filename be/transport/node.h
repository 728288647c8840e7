// Node: one process's end of the transport: registered memory, devices, I/O threads, the table
// of connections.
//
// Thread-safe. Destruction closes all sockets (their on_closed is called), stops the threads
// and releases everything; call it from a thread that is not an I/O thread of the node, when its
// Listeners are gone. Over softnic it waits, with a bound, for the peers to let go of our memory.
//
// In a forked child it is dead (base/fork.h): connect() reports kClosed before it returns, listen()
// fails, destruction touches and waits for nothing and calls nobody. A child may create its own.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "be/base/status.h"
#include "be/base/world.h"
#include "be/engine/engine_options.h"
#include "be/memory/registered_pool.h"
#include "be/softnic/softnic_device.h"
#include "be/transport/io_thread.h"
#include "be/transport/socket.h"
#include "be/verbs/device.h"
#include "be/verbs/hardware_device.h"

namespace be {

struct NodeOptions {
  TransportChoice transport = TransportChoice::kAuto;
  size_t io_threads = 1;
  bool driven = false;        // the application drives thread(0) itself; then io_threads == 1
  Nanoseconds spin = 50us;    // yield this long without work before sleeping
  bool spin_forever = false;  // started threads never sleep (benchmarks: "polling")
  PoolOptions memory;
  Nanoseconds memory_release_interval = 10s;  // memory not needed for so long may be given back
  EngineOptions engine;
  SoftnicOptions softnic;
  HardwareOptions hardware;
  Nanoseconds handshake_timeout = 5s;
  uint32_t max_message_bytes = 1u << 30;
  std::string secret;  // shared secret; empty: no proof, default bind is loopback
};

struct SocketOptions {
  Nanoseconds connect_timeout = 500ms;
  std::optional<TransportChoice> transport;  // default: the node's
};

// Decides about each socket that a peer opens: its handler, or null to refuse it. Called on the
// socket's I/O thread. `socket` is usable from within.
using Acceptor = std::function<SocketHandler*(Socket& socket)>;

class Listener {
 public:
  virtual ~Listener() = default;  // stops accepting; accepted sockets live on
  virtual const Address& address() const = 0;
};

class Node {
 public:
  static Result<std::unique_ptr<Node>> create(World& world, const NodeOptions& options);
  // On these devices instead of those that this machine has (simulation, tests).
  static Result<std::unique_ptr<Node>> create(World& world, const NodeOptions& options,
                                              std::vector<std::unique_ptr<Device>> devices);
  virtual ~Node() = default;

  // Asynchronous: handler->on_open or handler->on_closed, on the I/O thread that the connection
  // belongs to. The handler must live until its on_closed.
  virtual void connect(const Address& remote, const SocketOptions& options,
                       SocketHandler* handler) = 0;

  virtual Result<std::unique_ptr<Listener>> listen(const Address& address, Acceptor acceptor) = 0;

  virtual RegisteredPool& pool() = 0;
  virtual World& world() = 0;
  virtual const NodeOptions& options() const = 0;
  virtual size_t thread_count() const = 0;
  virtual IoThread& thread(size_t index) = 0;
  // For tests, when no thread of the node is running: an invariant of an engine (blueprint 6)
  // that does not hold, as an equation; null: all hold.
  virtual const char* broken_invariant() const { return nullptr; }
  virtual IoThread& thread_for(const Address& remote) = 0;  // where its sockets are, or will be
};

}  // namespace be
