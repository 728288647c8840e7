// RNICs through libibverbs: which there are, which of them we take and why, and opening those.
//
// A device is taken if its node can be opened, what we register may be pinned
// (be/verbs/hardware/memlock.h), a port is active and has an address we can use:
// InfiniBand by LID, RoCEv2 by the best GID (be/verbs/hardware/gid_selection.h). Any thread;
// opens and closes descriptors, milliseconds.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "be/base/status.h"
#include "be/base/time.h"
#include "be/verbs/device.h"

namespace be {

// How our queue pairs behave on the wire; what of it a fabric wants is told by who runs it.
struct HardwareOptions {
  Nanoseconds ack_timeout = 67ms;  // without an acknowledgement for so long, packets go again
  uint8_t retry_count = 6;         // so often, then it ends with RETRY_EXC; 7 is for ever on rxe
  uint8_t traffic_class = 0;       // RoCE: DSCP in its upper six bits
  uint8_t service_level = 0;       // InfiniBand, and the priority of VLANs; 0 ... 7

  bool relaxed_ordering = false;  // writes into the pool's memory may overtake each other on PCIe
  bool spread_lag_ports = false;  // bonded mlx5: each queue pair through the port with the fewest
};

// One line of `byteexpress devices`.
struct FoundDevice {
  std::string name;
  DeviceKind kind = DeviceKind::kHardware;
  bool usable = false;
  std::string why;         // taken: port, address, MTU, limits; not taken: what is in the way
  uint32_t mtu_bytes = 0;  // of RDMA packets, at the port that was taken
};

// Every RDMA device of this host. With none at all, one entry named "rdma" tells why.
// `registered_bytes`: the most that this process will register with each.
std::vector<FoundDevice> list_hardware_devices(uint64_t registered_bytes);

// Those that are usable, in the order of the list; empty is no failure.
std::vector<std::unique_ptr<Device>> open_hardware_devices(const HardwareOptions& options,
                                                           uint64_t registered_bytes);

}  // namespace be
