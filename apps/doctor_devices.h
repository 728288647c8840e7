// The RDMA devices that the kernel has, as /sys/class/infiniband tells of them: readable without
// opening any, so also where something still stands in the way.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <string>
#include <vector>

#include "apps/doctor_files.h"

namespace be::apps::doctor {

struct Gid {
  ibv_gid_entry entry{};  // ndev_ifindex: of an interface of this network namespace, or kElsewhere
  std::string interface;  // empty: none behind it
};
inline constexpr uint32_t kElsewhere = UINT32_MAX;

struct KernelPort {
  uint8_t number = 1;
  std::string state;       // "ACTIVE", "INIT", "DOWN"
  std::string physical;    // "LinkUp", "Polling", "Disabled"
  std::string link_layer;  // "Ethernet", "InfiniBand"
  std::string rate;        // "100 Gb/sec (4X EDR)"
  std::string interface;   // the network interface of the same port; empty: not known
  std::vector<Gid> gids;   // but those that are all zero

  bool ethernet() const { return link_layer == "Ethernet"; }
  bool active() const { return state == "ACTIVE"; }
};

struct KernelDevice {
  std::string name;       // "mlx5_0"
  std::string node;       // "uverbs0"; empty: ib_uverbs does not know it
  bool software = false;  // Soft-RoCE: of all drivers only rdma_rxe names a `parent`
  std::vector<KernelPort> ports;
};

std::vector<KernelDevice> read_devices(const Files& files);

}  // namespace be::apps::doctor
