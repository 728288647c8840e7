#include <unistd.h>

#include <cerrno>
#include <functional>

#include "be/base/log.h"
#include "be/verbs/hardware/device.h"
#include "be/verbs/hardware/memlock.h"
#include "be/verbs/hardware_device.h"

namespace be {
namespace {

using hardware::HardwareDevice;

// /dev/infiniband/uverbs0 and whether we may use it.
Status check_device_node(const ibv_device* device) {
  const std::string path = fmt::format("/dev/infiniband/{}", device->dev_name);
  if (::access(path.c_str(), R_OK | W_OK) == 0) return ok_status();
  if (errno == ENOENT) {
    return error(Code::kNotFound, "there is no device node {} (container without devices?)", path);
  }
  return error_from_errno(errno, fmt::format("device node {}", path));
}

Result<std::unique_ptr<HardwareDevice>> open_device(ibv_device* device,
                                                    const HardwareOptions& options,
                                                    uint64_t registered_bytes) {
  if (device->node_type != IBV_NODE_CA) {
    return error(Code::kUnsupported, "{} is neither InfiniBand nor RoCE",
                 ibv_node_type_str(device->node_type));
  }
  BE_RETURN_IF_ERROR(check_device_node(device));
  BE_RETURN_IF_ERROR(check_memlock(hardware::memlock_of_this_process(), registered_bytes));
  return HardwareDevice::open(device, options);
}

// Calls `visit` for each RDMA device, with the number of all; says why if there is none.
Status for_each_device(const std::function<void(ibv_device*, int)>& visit) {
  int count = 0;
  ibv_device** devices = ibv_get_device_list(&count);
  if (devices == nullptr) {
    if (errno == ENOSYS) return error(Code::kNotFound, "this kernel has no RDMA support");
    return error_from_errno(errno, "ibv_get_device_list");
  }
  for (int i = 0; i < count; ++i) visit(devices[i], count);
  ibv_free_device_list(devices);
  if (count == 0) {
    return error(Code::kNotFound,
                 "no RDMA device (nothing in /sys/class/infiniband with a libibverbs provider)");
  }
  return ok_status();
}

}  // namespace

std::vector<FoundDevice> list_hardware_devices(uint64_t registered_bytes) {
  std::vector<FoundDevice> found;
  const Status status = for_each_device([&](ibv_device* device, int count) {
    const auto opened = open_device(device, {}, count * registered_bytes);
    found.push_back({.name = ibv_get_device_name(device),
                     .usable = opened.ok(),
                     .why = opened.ok() ? opened.value()->describe() : opened.status().message(),
                     .mtu_bytes = opened.ok() ? opened.value()->port_mtu_bytes() : 0});
  });
  if (!status.ok()) found.push_back({.name = "rdma", .usable = false, .why = status.message()});
  return found;
}

std::vector<std::unique_ptr<Device>> open_hardware_devices(const HardwareOptions& options,
                                                           uint64_t registered_bytes) {
  std::vector<std::unique_ptr<Device>> opened;
  const Status status = for_each_device([&](ibv_device* device, int count) {
    auto one = open_device(device, options, count * registered_bytes);
    if (one.ok()) {
      opened.push_back(std::move(one).value());
    } else {
      log_info("device {} is not used: {}", ibv_get_device_name(device), one.status().message());
    }
  });
  if (!status.ok()) log_debug("no hardware device: {}", status.message());
  return opened;
}

}  // namespace be
