// The software RNIC: reliable connections among the processes of one user on one host, without
// root or a kernel module. docs/softnic.md tells how it works.
//
// Threads and failure: as verbs/device.h says. An SRQ belongs to one I/O thread, as its QPs do.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "be/base/status.h"
#include "be/base/time.h"
#include "be/verbs/device.h"

namespace be {

struct SoftnicOptions {
  uint32_t max_queue_pairs = 4096;         // 1 ... 4096
  size_t staging_bytes = size_t{4} << 20;  // for SENDs of memory that peers cannot map

  // Slowness of a NIC (pacing.h), for what is never under load while a copy is done as soon as it
  // is posted. 0: off.
  uint64_t link_bits_per_second = 0;
  Nanoseconds completion_delay{};  // at least so long after its bytes have left a send completes
};

inline constexpr uint64_t kMinLinkRate = 1'000'000;  // of a link, in bits per second
inline constexpr Nanoseconds kMaxCompletionDelay = 10s;

struct SoftnicStats {
  uint64_t staging_refused = 0;  // posts that found the staging area full (ENOMEM)
};

Result<std::unique_ptr<Device>> open_softnic(const SoftnicOptions& options);
SoftnicStats softnic_stats(const Device& device);  // of a softnic device; any thread

}  // namespace be
