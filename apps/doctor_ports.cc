#include "apps/doctor_ports.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

namespace be::apps::doctor {
namespace {

constexpr uint32_t kLargestMtu = 4096;
constexpr uint32_t kSmallestMtu = 256;
constexpr uint32_t kRoceHeaders =
    96;  // GRH or IP, UDP, BTH, extended headers, ICRC (the kernel's sum)
constexpr const char* kLargeMtuRemedy =
    "ip link set {} mtu 9000 (4200 is enough; switches and all peers too)";

std::string subject(const KernelDevice& device, const KernelPort& port, const char* what) {
  return fmt::format("{} port {}{}", device.name, port.number, what);
}

// Why the others are not taken, the equal reasons together: "0, 1: RoCEv1".
std::string others(const KernelPort& port, const ibv_gid_entry* chosen,
                   std::span<const hardware::LocalAddress> ours) {
  std::vector<std::pair<std::string, std::string>> reasons;  // indices by reason
  for (const Gid& gid : port.gids) {
    if (chosen != nullptr && gid.entry.gid_index == chosen->gid_index) continue;
    std::string why(hardware::why_never_chosen(gid.entry, ours));
    if (why.empty()) {
      const bool lower = chosen != nullptr &&
                         hardware::roce_gid_rank(gid.entry) < hardware::roce_gid_rank(*chosen);
      why = lower ? "less routable" : "higher index";
    }
    auto same = std::find_if(reasons.begin(), reasons.end(),
                             [&](const auto& reason) { return reason.first == why; });
    if (same == reasons.end()) same = reasons.insert(reasons.end(), {why, ""});
    same->second += fmt::format("{}{}", same->second.empty() ? "" : ", ", gid.entry.gid_index);
  }
  std::string text;
  for (const auto& [why, indices] : reasons) {
    text += fmt::format("; not {}: {}", indices, why);
  }
  return text;
}

}  // namespace

Finding check_link(const KernelDevice& device, const KernelPort& port) {
  Finding finding{subject(device, port, ""), Verdict::kOk, ""};
  finding.text = fmt::format("{}, {}, {}{}", port.state, port.link_layer, port.rate,
                             port.interface.empty() ? "" : ", interface " + port.interface);
  if (port.active()) return finding;
  finding.verdict = Verdict::kMissing;
  finding.text += fmt::format(", link {}", port.physical);
  if (port.ethernet()) {
    finding.remedy =
        fmt::format("ip link set {} up; if it stays down, the cable or the switch port",
                    port.interface.empty() ? "INTERFACE" : port.interface);
  } else if (port.physical == "LinkUp") {  // INIT, ARMED
    finding.remedy =
        "no subnet manager has configured the port: systemctl start opensm (on one host)";
  } else {
    finding.remedy = "the cable or the switch port; ibstat shows more";
  }
  return finding;
}

Finding check_gids(const KernelDevice& device, const KernelPort& port,
                   std::span<const hardware::LocalAddress> ours) {
  Finding finding{subject(device, port, " GID"), Verdict::kOk, ""};
  if (!port.ethernet()) {
    finding.verdict = Verdict::kSkipped;
    finding.text = "InfiniBand is addressed by LID";
    return finding;
  }
  std::vector<ibv_gid_entry> entries;
  for (const Gid& gid : port.gids) entries.push_back(gid.entry);
  const std::optional<ibv_gid_entry> chosen = hardware::choose_roce_gid(entries, port.number, ours);
  if (!chosen) {
    finding.verdict = Verdict::kMissing;
    finding.text = "no RoCEv2 GID that is an address of this host" + others(port, nullptr, ours);
    finding.remedy = fmt::format(
        "ip address add 10.0.0.1/24 dev {} (an address of your network; in a container, "
        "run with --network=host or give it the interface)",
        port.interface.empty() ? "INTERFACE" : port.interface);
    return finding;
  }
  finding.text = fmt::format("index {}, RoCEv2, {}{}", chosen->gid_index,
                             hardware::gid_to_string(chosen->gid), others(port, &*chosen, ours));
  if (hardware::roce_gid_rank(*chosen) == 1) {
    finding.verdict = Verdict::kWarning;
    finding.text += "; link-local: routers do not pass it on";
    finding.remedy = fmt::format("ip address add 10.0.0.1/24 dev {} (an address of your network)",
                                 port.interface);
  }
  return finding;
}

uint32_t roce_mtu_bytes(uint64_t interface_mtu_bytes) {
  uint32_t mtu = kLargestMtu;
  while (mtu > kSmallestMtu && mtu + kRoceHeaders > interface_mtu_bytes) mtu /= 2;
  return mtu;
}

Finding check_mtu(const Files& files, const KernelDevice& device, const KernelPort& port,
                  uint32_t active_bytes) {
  Finding finding{subject(device, port, " MTU"), Verdict::kOk, ""};
  const auto interface_bytes = files.number(fmt::format("/sys/class/net/{}/mtu", port.interface));
  if (!port.ethernet() || !interface_bytes) {
    finding.verdict = active_bytes != 0 ? Verdict::kOk : Verdict::kSkipped;
    finding.text = active_bytes != 0 ? fmt::format("{}", active_bytes) : "the device must say it";
    return finding;
  }
  const uint32_t fits = roce_mtu_bytes(*interface_bytes);
  const uint32_t mtu = active_bytes != 0 ? active_bytes : fits;
  finding.text = fmt::format("{}, on {} with MTU {}", mtu, port.interface, *interface_bytes);
  if (mtu < fits) {
    finding.verdict = Verdict::kWarning;
    finding.text += fmt::format(", which has room for {}", fits);
    finding.remedy = fmt::format("ip link set {0} mtu {1} (the device has not followed it)",
                                 port.interface, *interface_bytes);
  } else if (mtu < kLargestMtu) {
    finding.verdict = Verdict::kWarning;
    finding.text += fmt::format(": {} are possible", kLargestMtu);
    finding.remedy = fmt::format(kLargeMtuRemedy, port.interface);
  }
  return finding;
}

}  // namespace be::apps::doctor
