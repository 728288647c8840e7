// Memory that the host has taken away from this virtual machine.
//
// Where the hypervisor offers free page reporting (virtio-balloon), pages that nobody has used for
// two seconds go back to the host, and the next one to touch them pays for that: about 2 s a GiB
// here, against 0.07 s (huge pages) to 0.4 s (small ones) for what the guest itself has to do. It
// is no allocator's doing, and hits whoever comes first; so before each run as much memory as it
// will take is touched and freed, for all allocators alike. On real machines this does nothing.
#pragma once

#include <cstddef>

namespace be::bench {

void fetch_memory_from_host(size_t bytes);

}  // namespace be::bench
