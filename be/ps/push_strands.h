// PushStrands: applies pushes, per virtual shard in the order in which they arrived.
//
//   Push (I/O thread) --validated--> strand v mod s for each of its virtual shards v --> answer
//
// A strand is a pool of one thread, so what is submitted to it runs in that order, and one
// strand alone writes a given virtual shard. A push that touches several strands is applied by
// each for its part; the last one answers.
//
// submit() is for I/O threads, never blocks. Destruction applies what was submitted.
#pragma once

#include <memory>
#include <vector>

#include "be/base/world.h"
#include "be/ps/server_core.h"
#include "be/rpc/server.h"

namespace be::ps {

// A push whose request has been validated against its table; `request` points into the call.
struct ValidPush {
  rpc::ServerCall call;
  PushRequest request;
  Table* table;
};

class PushStrands {
 public:
  static Result<std::unique_ptr<PushStrands>> start(World& world, int threads, RegisteredPool& pool,
                                                    ServerCore& core);

  void submit(ValidPush push);

 private:
  struct Job;
  PushStrands(RegisteredPool& pool, ServerCore& core) : pool_(pool), core_(core) {}

  void apply(Job& job, size_t strand);
  void answer(Job& job);
  size_t strand_of(uint32_t virtual_shard) const { return virtual_shard % strands_.size(); }

  RegisteredPool& pool_;
  ServerCore& core_;
  std::vector<std::unique_ptr<WorkerPool>> strands_;
};

}  // namespace be::ps
