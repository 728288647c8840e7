#include "apps/doctor_devices.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace be::apps::doctor {
namespace {

constexpr const char* kClass = "/sys/class/infiniband";

// "4: ACTIVE" -> "ACTIVE"
std::string behind_colon(const std::string& text) {
  const size_t colon = text.find(": ");
  return colon == std::string::npos ? text : text.substr(colon + 2);
}

bool is_zero(const ibv_gid& gid) {
  return std::all_of(std::begin(gid.raw), std::end(gid.raw),
                     [](uint8_t byte) { return byte == 0; });
}

uint32_t gid_type(const std::string& name) {
  if (name == "RoCE v2") return IBV_GID_TYPE_ROCE_V2;
  return name == "IB/RoCE v1" ? IBV_GID_TYPE_ROCE_V1 : IBV_GID_TYPE_IB;
}

std::vector<Gid> read_gids(const Files& files, const std::string& port, uint8_t number) {
  std::vector<Gid> gids;
  for (const std::string& index : files.names(port + "/gids")) {
    Gid gid;
    gid.entry.port_num = number;
    const std::string text = files.line(port + "/gids/" + index).value_or("");
    if (::inet_pton(AF_INET6, text.c_str(), gid.entry.gid.raw) != 1) continue;
    if (is_zero(gid.entry.gid)) continue;
    std::from_chars(index.data(), index.data() + index.size(), gid.entry.gid_index);
    gid.entry.gid_type = gid_type(files.line(port + "/gid_attrs/types/" + index).value_or(""));
    gid.interface = files.line(port + "/gid_attrs/ndevs/" + index).value_or("");
    if (!gid.interface.empty()) {
      gid.entry.ndev_ifindex = static_cast<uint32_t>(
          files.number(fmt::format("/sys/class/net/{}/ifindex", gid.interface))
              .value_or(kElsewhere));
    }
    gids.push_back(gid);
  }
  std::sort(gids.begin(), gids.end(),
            [](const Gid& a, const Gid& b) { return a.entry.gid_index < b.entry.gid_index; });
  return gids;
}

// A port without any address has no GID that names its interface: `parent` of Soft-RoCE does, and
// of a NIC its own interfaces, told apart by the number of their port.
std::string interface_of(const Files& files, const std::string& device, const KernelPort& port) {
  for (const Gid& gid : port.gids) {
    if (!gid.interface.empty()) return gid.interface;
  }
  if (const auto parent = files.line(device + "/parent")) return *parent;
  const std::vector<std::string> interfaces = files.names(device + "/device/net");
  for (const std::string& name : interfaces) {
    const auto number = files.number(fmt::format("{}/device/net/{}/dev_port", device, name));
    if (number.value_or(UINT64_MAX) + 1 == port.number) return name;
  }
  return interfaces.size() == 1 ? interfaces[0] : "";
}

KernelPort read_port(const Files& files, const std::string& device, const std::string& number) {
  const std::string folder = fmt::format("{}/ports/{}", device, number);
  KernelPort port;
  std::from_chars(number.data(), number.data() + number.size(), port.number);
  port.state = behind_colon(files.line(folder + "/state").value_or(""));
  port.physical = behind_colon(files.line(folder + "/phys_state").value_or(""));
  port.link_layer = files.line(folder + "/link_layer").value_or("");
  port.rate = files.line(folder + "/rate").value_or("");
  port.gids = read_gids(files, folder, port.number);
  port.interface = interface_of(files, device, port);
  return port;
}

std::string node_of(const Files& files, const std::string& name) {
  constexpr const char* kNodes = "/sys/class/infiniband_verbs";
  for (const std::string& node : files.names(kNodes)) {
    if (files.line(fmt::format("{}/{}/ibdev", kNodes, node)) == name) return node;
  }
  return "";
}

}  // namespace

std::vector<KernelDevice> read_devices(const Files& files) {
  std::vector<KernelDevice> devices;
  for (const std::string& name : files.names(kClass)) {
    const std::string folder = fmt::format("{}/{}", kClass, name);
    KernelDevice device{.name = name,
                        .node = node_of(files, name),
                        .software = files.exists(folder + "/parent"),
                        .ports = {}};
    for (const std::string& number : files.names(folder + "/ports")) {
      device.ports.push_back(read_port(files, folder, number));
    }
    devices.push_back(std::move(device));
  }
  return devices;
}

}  // namespace be::apps::doctor
