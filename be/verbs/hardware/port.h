// The port of a device that carries our queue pairs, and our address there.
//
// Any thread; queries the device.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <string>
#include <vector>

#include "be/base/status.h"
#include "be/verbs/hardware/gid_selection.h"

namespace be::hardware {

struct Port {
  uint8_t number = 1;
  uint8_t link_layer = IBV_LINK_LAYER_ETHERNET;
  ibv_mtu mtu = IBV_MTU_1024;
  uint16_t lid = 0;        // InfiniBand
  uint32_t gid_index = 0;  // RoCE
  ibv_gid gid{};

  std::string to_string() const;  // "port 1, RoCEv2 GID ::ffff:10.0.0.2 (index 3), MTU 1024"
};

// What this network namespace has; empty if it cannot be read.
std::vector<LocalAddress> local_addresses();

// The address of a port as it is now.
Result<Port> query_port(ibv_context* context, uint8_t number);

// The first port of the device that is active and has an address; else why each has not.
Result<Port> choose_port(ibv_context* context, uint8_t port_count);

}  // namespace be::hardware
