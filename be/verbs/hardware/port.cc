#include "be/verbs/hardware/port.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <span>

#include "be/verbs/errors.h"
#include "be/verbs/hardware/endpoint.h"

namespace be::hardware {
namespace {

constexpr size_t kMaxGids = 1024;

Status read_gid(ibv_context* context, Port& port) {
  std::array<ibv_gid_entry, kMaxGids> entries;
  const ssize_t count = ibv_query_gid_table(context, entries.data(), entries.size(), 0);
  if (count < 0) {
    return verb_error("ibv_query_gid_table", static_cast<int>(-count),
                      ibv_get_device_name(context->device));
  }
  const auto chosen = choose_roce_gid(std::span(entries.data(), static_cast<size_t>(count)),
                                      port.number, local_addresses());
  if (!chosen) {
    return error(Code::kUnavailable,
                 "port {} has no RoCEv2 GID that is an address of this host (and of this network "
                 "namespace)",
                 port.number);
  }
  port.gid_index = chosen->gid_index;
  port.gid = chosen->gid;
  return ok_status();
}

}  // namespace

std::vector<LocalAddress> local_addresses() {
  std::vector<LocalAddress> found;
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return found;
  for (const ifaddrs* each = list; each != nullptr; each = each->ifa_next) {
    LocalAddress local{.interface_index = ::if_nametoindex(each->ifa_name)};
    if (each->ifa_addr != nullptr && each->ifa_addr->sa_family == AF_INET) {
      const auto* ipv4 = reinterpret_cast<const sockaddr_in*>(each->ifa_addr);
      local.address = ipv4_mapped(ipv4->sin_addr.s_addr);
    } else if (each->ifa_addr != nullptr && each->ifa_addr->sa_family == AF_INET6) {
      const auto* ipv6 = reinterpret_cast<const sockaddr_in6*>(each->ifa_addr);
      std::memcpy(local.address.raw, &ipv6->sin6_addr, sizeof local.address.raw);
    }
    found.push_back(local);
  }
  ::freeifaddrs(list);
  return found;
}

std::string Port::to_string() const {
  const std::string address =
      link_layer == IBV_LINK_LAYER_INFINIBAND
          ? fmt::format("InfiniBand LID {}", lid)
          : fmt::format("RoCEv2 GID {} (index {})", gid_to_string(gid), gid_index);
  return fmt::format("port {}, {}, MTU {}", number, address, mtu_bytes(mtu));
}

Result<Port> query_port(ibv_context* context, uint8_t number) {
  ibv_port_attr attributes{};
  if (const int why = ibv_query_port(context, number, &attributes); why != 0) {
    return verb_error("ibv_query_port", why, fmt::format("port {}", number));
  }
  if (attributes.state != IBV_PORT_ACTIVE) {
    return error(Code::kUnavailable, "port {} is not active but {}", number,
                 ibv_port_state_str(attributes.state));
  }
  Port port{.number = number,
            .link_layer = attributes.link_layer,
            .mtu = attributes.active_mtu,
            .lid = attributes.lid};
  if (port.link_layer == IBV_LINK_LAYER_UNSPECIFIED) port.link_layer = IBV_LINK_LAYER_INFINIBAND;
  if (port.link_layer == IBV_LINK_LAYER_ETHERNET) BE_RETURN_IF_ERROR(read_gid(context, port));
  return port;
}

Result<Port> choose_port(ibv_context* context, uint8_t port_count) {
  std::string reasons = port_count == 0 ? "the device has no port" : "";
  for (int number = 1; number <= port_count; ++number) {
    auto port = query_port(context, static_cast<uint8_t>(number));
    if (port.ok()) return port;
    if (!reasons.empty()) reasons += "; ";
    reasons += port.status().message();
  }
  return Status(Code::kUnavailable, reasons);
}

}  // namespace be::hardware
