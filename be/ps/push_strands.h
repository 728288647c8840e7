// PushStrands: applies pushes, per virtual shard in the order in which they arrived.
//
//   Push (I/O thread) --validated--> strand v mod s for each of its virtual shards v --> answer
//
// A strand is a pool of one thread, so what is submitted to it runs in that order. A push that
// touches several strands is applied by each for its part; the last one answers.
//
// A short push whose strands have nothing to do is applied at once, on the I/O thread: some
// microseconds of work, where waking a thread for it costs more (measured: a third of the latency
// and half of the CPU time of a Push). Order is kept: the I/O thread of a connection either finds
// all earlier pushes of that connection done, or queues behind them. (Pushes of different
// connections that are under way at the same time have no order.)
//
// submit() is for I/O threads, never blocks. Destruction applies what was submitted.
#pragma once

#include <atomic>
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
  struct Strand {
    std::atomic<size_t> unfinished{0};  // submitted and not yet applied
    std::unique_ptr<WorkerPool> thread;
  };
  struct Job;

  PushStrands(RegisteredPool& pool, ServerCore& core, size_t strands)
      : pool_(pool), core_(core), strands_(strands) {}

  std::vector<bool> touched_by(Unaligned<Key> keys) const;
  bool all_idle(const std::vector<bool>& touched) const;
  void apply(Job& job, size_t strand);
  void answer(Job& job);
  size_t strand_of(uint32_t virtual_shard) const { return virtual_shard % strands_.size(); }

  RegisteredPool& pool_;
  ServerCore& core_;
  std::vector<Strand> strands_;
};

}  // namespace be::ps
