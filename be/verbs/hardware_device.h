// RNICs through libibverbs: which there are, which of them we take and why, and opening those.
//
// A device is taken if its node can be opened, a port is active and has an address we can use:
// InfiniBand by LID, RoCEv2 by the best GID (be/verbs/hardware/gid_selection.h). Any thread;
// opens and closes descriptors, milliseconds.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "be/base/status.h"
#include "be/verbs/device.h"

namespace be {

// One line of `byteexpress devices`.
struct FoundDevice {
  std::string name;
  DeviceKind kind = DeviceKind::kHardware;
  bool usable = false;
  std::string why;  // taken: port, address, MTU, limits; not taken: what is in the way
};

// Every RDMA device of this host. With none at all, one entry named "rdma" tells why.
std::vector<FoundDevice> list_hardware_devices();

// Those that are usable, in the order of the list; empty is no failure.
std::vector<std::unique_ptr<Device>> open_hardware_devices();

}  // namespace be
