// Which of a port's GIDs is ours, when a RoCE port has many.
//
//   rank 3  RoCEv2, IPv4-mapped, routable     ::ffff:10.0.0.2
//   rank 2  RoCEv2, IPv6, routable            2001:db8::2
//   rank 1  RoCEv2, link-local                fe80::..., ::ffff:169.254.x.y
//   rank 0  never: RoCEv1, no network interface behind it, all zero, index above 255
//
// The best rank wins, then the lowest index, so that two hosts of one network choose alike. A
// device shows the GIDs of all network namespaces, and the kernel sends from ours only: a routable
// one must be an address of this host, a link-local one belong to an interface of it.
// GIDs come and go with addresses: read them again for every connection. Pure.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace be::hardware {

// An interface of our network namespace and, unless it has none, one of its addresses.
struct LocalAddress {
  uint32_t interface_index = 0;
  ibv_gid address{};  // IPv4 is mapped
};

int roce_gid_rank(const ibv_gid_entry& entry);
bool is_of_this_host(const ibv_gid_entry& entry, std::span<const LocalAddress> ours);

// "RoCEv1", "not an address of this network namespace", ...; empty: it can be.
std::string_view why_never_chosen(const ibv_gid_entry& entry, std::span<const LocalAddress> ours);

// Of `entries`, those of port `port_number`.
std::optional<ibv_gid_entry> choose_roce_gid(std::span<const ibv_gid_entry> entries,
                                             uint8_t port_number,
                                             std::span<const LocalAddress> ours);

ibv_gid ipv4_mapped(uint32_t address_in_network_order);
std::string gid_to_string(const ibv_gid& gid);  // "::ffff:10.0.0.2"

}  // namespace be::hardware
