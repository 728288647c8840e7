// What the messages really went over, in words that cannot be mistaken for a NIC's:
//
//   kernel TCP | softnic (software RNIC) | rxe0 (Soft-RoCE, kernel software) | mlx5_0 (RDMA device)
#pragma once

#include <string>
#include <string_view>

#include "be/transport/socket.h"

namespace be::apps {

// `sysfs` is where the kernel describes RDMA devices, a folder each.
std::string device_label(TransportKind transport, std::string_view device,
                         const std::string& sysfs = "/sys/class/infiniband");

}  // namespace be::apps
