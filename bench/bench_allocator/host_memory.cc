#include "bench/bench_allocator/host_memory.h"

#include <sys/mman.h>

#include "bench/common/touch.h"

namespace be::bench {

void fetch_memory_from_host(size_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return;
  madvise(memory, bytes, MADV_HUGEPAGE);
  write_each_page(memory, bytes);
  munmap(memory, bytes);
}

}  // namespace be::bench
