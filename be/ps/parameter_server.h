// ParameterServer: one server's share of all tables, over rpc.
//
//   be.ps.Fetch   raw, inline on the I/O thread (very long ones on a worker): reads rows straight
//                 into a registered Buffer
//   be.ps.Push    raw, checked on the I/O thread, applied in arrival order: at once if short and
//                 nothing waits, else by the push strands
//   be.ps.ParameterService   protobuf, on the workers: tables, description, statistics
//
// A request is checked whole before anything of it is done: bounds, view, owner of every key,
// table, dimension, finite gradients. So a push is applied entirely or refused by name, and it
// is always answered: a push that was applied is acknowledged.
//
// Any thread. `node` must outlive the server. Destruction stops listening, applies the pushes
// that were accepted, and forgets the tables.
#pragma once

#include <memory>

#include "be/ps/wire.h"
#include "be/rpc/server.h"
#include "be/transport/node.h"

namespace be::ps {

struct ParameterServerOptions {
  uint32_t server_index = 0;  // which of the view's servers this is
  uint32_t server_count = 1;
  uint32_t view_version = 1;
  int push_threads = 1;
  size_t max_tables = 1024;
  Limits limits{};
  rpc::ServerOptions rpc{};
};

class ParameterServer {
 public:
  static Result<std::unique_ptr<ParameterServer>> create(Node& node,
                                                         const ParameterServerOptions& options);
  virtual ~ParameterServer() = default;

  virtual Status listen(const Address& address) = 0;
  virtual const Address& address() const = 0;  // after listen: with the port that was given
};

}  // namespace be::ps
