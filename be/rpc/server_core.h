// ServerCore: what a Server and its connections share, and what outlives the Server.
//
//   Server --owns--> Listener, WorkerPool        ServerCore <--shared-- ServerConnection ...
//
// Methods are fixed when listen() is called and read by all threads afterwards. Each I/O thread
// has a Shard of its own; only `in_progress` is read by others, so counting costs no locked
// instruction. The limit may be passed by one call per further I/O thread that counts at the same
// moment.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "be/rpc/server.h"

namespace be::rpc {

class ServerConnection;

struct ServerMethod {
  MethodId id = 0;
  std::string name;
  RunOn run_on = RunOn::kWorkers;
  Handler handler;
};

struct ServerCore {
  struct Shard {
    IoThread* thread = nullptr;
    std::atomic<uint32_t> in_progress{0};        // written by `thread` only
    std::vector<ServerConnection*> connections;  // its open ones; `thread` only

    void count(int32_t change) {
      in_progress.store(in_progress.load(std::memory_order_relaxed) + change,
                        std::memory_order_relaxed);
    }
  };

  ServerCore(Node& server_node, const ServerOptions& server_options);

  const ServerMethod* find(MethodId id) const;  // null: unknown
  Shard* shard_of(const IoThread& thread);
  uint32_t in_progress() const;

  Node& node;
  const ServerOptions options;
  std::vector<ServerMethod> methods;  // in order of id
  std::unique_ptr<Shard[]> shards;    // one per I/O thread of the node
  const size_t shard_count;
  WorkerPool* workers = nullptr;  // null: no method runs there
  std::atomic<bool> shutting_down{false};
  Buffer no_memory_text;  // made by listen(), gone with the Server: the pool may not outlive it
};

}  // namespace be::rpc
