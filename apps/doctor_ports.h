// A port of a device: is its link up, which address would we take, how large may packets be?
//
// Pure but for the files that are read.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "apps/doctor_devices.h"
#include "apps/doctor_files.h"
#include "apps/doctor_finding.h"
#include "be/verbs/hardware/gid_selection.h"

namespace be::apps::doctor {

Finding check_link(const KernelDevice& device, const KernelPort& port);

// RoCE: which GID be/verbs/hardware/gid_selection.h takes, and why none of the others.
// `ours` is what this network namespace has.
Finding check_gids(const KernelDevice& device, const KernelPort& port,
                   std::span<const hardware::LocalAddress> ours);

// RoCE: the MTU of RDMA packets follows that of the interface. `active_bytes` is what the device
// says, 0 if it could not be asked.
Finding check_mtu(const Files& files, const KernelDevice& device, const KernelPort& port,
                  uint32_t active_bytes);

// The largest RDMA MTU that fits: headers of up to 96 bytes go with it.
uint32_t roce_mtu_bytes(uint64_t interface_mtu_bytes);

}  // namespace be::apps::doctor
