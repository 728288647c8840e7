#include "be/verbs/hardware/gid_selection.h"

#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <cstring>

namespace be::hardware {
namespace {

constexpr uint32_t kLargestIndex = 255;  // of ibv_global_route::sgid_index

bool is_zero(const ibv_gid& gid) {
  return std::all_of(std::begin(gid.raw), std::end(gid.raw),
                     [](uint8_t byte) { return byte == 0; });
}

constexpr std::array<uint8_t, 12> kIpv4Prefix = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

bool is_ipv4_mapped(const ibv_gid& gid) {
  return std::equal(kIpv4Prefix.begin(), kIpv4Prefix.end(), gid.raw);
}

bool is_link_local(const ibv_gid& gid) {
  if (is_ipv4_mapped(gid)) return gid.raw[12] == 169 && gid.raw[13] == 254;
  return gid.raw[0] == 0xfe && (gid.raw[1] & 0xc0) == 0x80;  // fe80::/10
}

std::string_view why_unusable(const ibv_gid_entry& entry) {
  if (is_zero(entry.gid)) return "empty";
  if (entry.gid_type != IBV_GID_TYPE_ROCE_V2) return "RoCEv1";
  if (entry.ndev_ifindex == 0) return "no network interface behind it";
  if (entry.gid_index > kLargestIndex) return "index above 255";
  return "";
}

}  // namespace

int roce_gid_rank(const ibv_gid_entry& entry) {
  if (!why_unusable(entry).empty()) return 0;
  if (is_link_local(entry.gid)) return 1;
  return is_ipv4_mapped(entry.gid) ? 3 : 2;
}

bool is_of_this_host(const ibv_gid_entry& entry, std::span<const LocalAddress> ours) {
  const bool by_interface = is_link_local(entry.gid);
  return std::any_of(ours.begin(), ours.end(), [&](const LocalAddress& local) {
    if (by_interface) return local.interface_index == entry.ndev_ifindex;
    return std::equal(std::begin(local.address.raw), std::end(local.address.raw), entry.gid.raw);
  });
}

std::string_view why_never_chosen(const ibv_gid_entry& entry, std::span<const LocalAddress> ours) {
  if (const std::string_view why = why_unusable(entry); !why.empty()) return why;
  return is_of_this_host(entry, ours) ? "" : "not an address of this network namespace";
}

std::optional<ibv_gid_entry> choose_roce_gid(std::span<const ibv_gid_entry> entries,
                                             uint8_t port_number,
                                             std::span<const LocalAddress> ours) {
  std::optional<ibv_gid_entry> best;
  for (const ibv_gid_entry& entry : entries) {
    if (entry.port_num != port_number || !why_never_chosen(entry, ours).empty()) continue;
    const int advantage = best ? roce_gid_rank(entry) - roce_gid_rank(*best) : 1;
    if (advantage > 0 || (advantage == 0 && entry.gid_index < best->gid_index)) best = entry;
  }
  return best;
}

ibv_gid ipv4_mapped(uint32_t address_in_network_order) {
  ibv_gid gid{};
  std::copy(kIpv4Prefix.begin(), kIpv4Prefix.end(), gid.raw);
  std::memcpy(gid.raw + kIpv4Prefix.size(), &address_in_network_order,
              sizeof address_in_network_order);
  return gid;
}

std::string gid_to_string(const ibv_gid& gid) {
  char text[INET6_ADDRSTRLEN] = {};
  ::inet_ntop(AF_INET6, gid.raw, text, sizeof text);
  return text;
}

}  // namespace be::hardware
