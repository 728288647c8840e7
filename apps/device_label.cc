#include "apps/device_label.h"

#include <fmt/format.h>

#include <filesystem>

namespace be::apps {

std::string device_label(TransportKind transport, std::string_view device,
                         const std::string& sysfs) {
  switch (transport) {
    case TransportKind::kTcp:
      return "kernel TCP";
    case TransportKind::kSoftnic:
      return "softnic (software RNIC)";
    case TransportKind::kSimulated:
      return "simulated";
    case TransportKind::kHardware:
      break;
  }
  // Of all drivers only rdma_rxe has `parent`: the network device below it. Its name says nothing,
  // who creates it may call it mlx5_0.
  std::error_code none;
  const bool rxe = std::filesystem::exists(fmt::format("{}/{}/parent", sysfs, device), none);
  return fmt::format("{} ({})", device, rxe ? "Soft-RoCE, kernel software" : "RDMA device");
}

}  // namespace be::apps
