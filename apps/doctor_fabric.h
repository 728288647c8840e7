// What keeps RoCE from losing packets under load: priority flow control and ECN.
//
// Pure but for the files that are read.
#pragma once

#include <cstdint>

#include "apps/doctor_devices.h"
#include "apps/doctor_files.h"
#include "apps/doctor_finding.h"

namespace be::apps::doctor {

// The priority that packets of a RoCE traffic class have where DSCP is trusted: its upper three
// bits, as adapters and switches map them unless told otherwise.
inline int priority_of(uint8_t traffic_class) { return traffic_class >> 5; }

// ECN of our priority: mlx5 shows it (its vendor's driver, not the kernel's own).
Finding check_ecn(const Files& files, const KernelDevice& device, const KernelPort& port,
                  uint8_t traffic_class);

// Flow control of our priority: what the adapter trusts is all that sysfs shows, the rest is asked
// by netlink.
Finding check_pfc(const Files& files, const KernelDevice& device, const KernelPort& port,
                  uint8_t traffic_class);

}  // namespace be::apps::doctor
