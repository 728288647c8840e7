// All that can be told of a machine without sending anything, in the order in which it is to be
// mended.
//
//   kernel -> memory lock -> each device: node, provider, each port: link, GID, MTU, PFC, ECN;
//   taken? -> huge pages -> fork
//
// Pure but for the files that are read: what else there is to know is given.
#pragma once

#include <cstdint>
#include <vector>

#include "apps/doctor_files.h"
#include "apps/doctor_finding.h"
#include "be/memory/pool_options.h"
#include "be/verbs/hardware/gid_selection.h"
#include "be/verbs/hardware/memlock.h"
#include "be/verbs/hardware_device.h"

namespace be::apps::doctor {

struct Machine {
  Files files;
  std::vector<hardware::LocalAddress> addresses;  // of our network namespace
  std::vector<FoundDevice> listed;                // by libibverbs, each tried
  hardware::Memlock memlock;
  uint64_t cap_bytes = 0;  // of registered memory
  HugePages huge_pages = HugePages::kTransparent;
  uint8_t traffic_class = 0;
};

std::vector<Finding> examine(const Machine& machine);

}  // namespace be::apps::doctor
