// The software RNIC: reliable connections among the processes of one user on one host, without
// root or a kernel module. docs/softnic.md tells how it works.
//
// Threads and failure: as verbs/device.h says. An SRQ belongs to one I/O thread, as its QPs do.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "be/base/status.h"
#include "be/verbs/device.h"

namespace be {

struct SoftnicOptions {
  uint32_t max_queue_pairs = 4096;         // 1 ... 4096
  size_t staging_bytes = size_t{4} << 20;  // for SENDs of memory that peers cannot map
};

Result<std::unique_ptr<Device>> open_softnic(const SoftnicOptions& options);

}  // namespace be
