#include "apps/doctor_fabric.h"

#include <fmt/format.h>

#include <string>

namespace be::apps::doctor {
namespace {

std::string subject(const KernelDevice& device, const KernelPort& port, const char* what) {
  return fmt::format("{} port {} {}", device.name, port.number, what);
}

std::string our_priority(uint8_t traffic_class) {
  return fmt::format("priority {} (hardware.traffic_class {}, DSCP {})", priority_of(traffic_class),
                     traffic_class, traffic_class >> 2);
}

}  // namespace

Finding check_ecn(const Files& files, const KernelDevice& device, const KernelPort& port,
                  uint8_t traffic_class) {
  Finding finding{subject(device, port, "ECN"), Verdict::kSkipped, ""};
  if (!port.ethernet()) {
    finding.text = "InfiniBand has its own congestion control";
    return finding;
  }
  const int priority = priority_of(traffic_class);
  const std::string folder = fmt::format("/sys/class/net/{}/ecn/", port.interface);
  const std::string notify = fmt::format("{}roce_np/enable/{}", folder, priority);
  const std::string react = fmt::format("{}roce_rp/enable/{}", folder, priority);
  const auto notifies = files.number(notify);
  const auto reacts = files.number(react);
  if (!notifies || !reacts) {
    finding.text = "not shown by this driver";
    return finding;
  }
  finding.text = our_priority(traffic_class);
  if (*notifies != 0 && *reacts != 0) {
    finding.verdict = Verdict::kOk;
    finding.text += ": the adapter notifies and reacts";
    return finding;
  }
  finding.verdict = Verdict::kWarning;
  finding.text += fmt::format(": the adapter does not {}",
                              *notifies != 0 ? "react to congestion" : "notify senders of it");
  finding.remedy = fmt::format("echo 1 | tee {} {} (and marking in the switches)", notify, react);
  return finding;
}

Finding check_pfc(const Files& files, const KernelDevice& device, const KernelPort& port,
                  uint8_t traffic_class) {
  Finding finding{subject(device, port, "PFC"), Verdict::kSkipped, ""};
  if (!port.ethernet()) {
    finding.text = "InfiniBand loses no packets to full buffers";
    return finding;
  }
  finding.remedy = fmt::format("dcb pfc show dev {0} (mlx5: mlnx_qos -i {0})", port.interface);
  const auto trust = files.line(fmt::format("/sys/class/net/{}/qos/trust", port.interface));
  if (!trust) {
    finding.text = "not shown by this driver";
    return finding;
  }
  if (*trust != "dscp" && traffic_class != 0) {
    finding.verdict = Verdict::kWarning;
    finding.text =
        fmt::format("the adapter trusts {}: hardware.traffic_class chooses no priority", *trust);
    finding.remedy = fmt::format("mlnx_qos -i {} --trust dscp", port.interface);
    return finding;
  }
  finding.text = fmt::format("the adapter trusts {}; sysfs does not show whether {} is lossless",
                             *trust, our_priority(traffic_class));
  return finding;
}

}  // namespace be::apps::doctor
