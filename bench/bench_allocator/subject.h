// What a worker process measures: malloc, whichever library provides it, or our pool.
//
//   malloc   of the process; LD_PRELOAD decides whose (peers.h)
//   pool     a RegisteredPool of its own as production has it: a sealed memfd, default options but
//            a cap that is never reached, and one open softnic device
//   pool without device, pool without huge pages: to see what these cost and bring
//
// Any thread allocates and frees. A pool that cannot be made is a Status; memory that runs out
// ends the process by name, for its figures would be worthless.
#pragma once

#include <memory>
#include <string>

#include "be/base/status.h"
#include "be/memory/registered_pool.h"
#include "bench/bench_allocator/workload.h"

namespace be::bench {

class Subject : public Allocator {
 public:
  // By one of these names. Any other is kInvalidArgument.
  static Result<std::unique_ptr<Subject>> create(const std::string& name);

  virtual RegisteredPool* registered() { return nullptr; }  // null: malloc
};

}  // namespace be::bench
