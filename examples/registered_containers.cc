#include <cstdio>
#include <numeric>
#include <utility>
#include <vector>

#include "be/memory/pool_allocator.h"
#include "be/memory/vector_buffer.h"
#include "be/transport/node.h"

be::Status run() {
  BE_ASSIGN_OR_RETURN(auto node, be::Node::create(be::kernel_world(), {}));
  be::RegisteredPool& pool = node->pool();  // what is allocated here, every device can reach
  std::vector<float, be::PoolAllocator<float>> gradients(1000, pool);
  std::iota(gradients.begin(), gradients.end(), 0.0F);
  if (const be::RegionKeys* keys = pool.region(gradients.data(), 0)) {
    std::printf("lkey %u, rkey %u\n", keys->lkey, keys->rkey);
  }
  // The vector's own memory as the body of a message: it is freed when that has been sent.
  BE_ASSIGN_OR_RETURN(be::Buffer body, be::vector_buffer(pool, std::move(gradients)));
  std::printf("%zu bytes, not one of them copied\n", body.size());
  return be::ok_status();
}

int main() { std::fprintf(stderr, "%s\n", run().to_string().c_str()); }
