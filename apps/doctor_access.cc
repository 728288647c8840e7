#include "apps/doctor_access.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <utility>

#include "be/base/status.h"

namespace be::apps::doctor {
namespace {

// Drivers of adapters on the PCI bus, and the module that makes them RDMA devices.
constexpr std::pair<const char*, const char*> kRdmaModules[] = {
    {"mlx5_core", "mlx5_ib"}, {"mlx4_core", "mlx4_ib"},  {"bnxt_en", "bnxt_re"},
    {"ice", "irdma"},         {"i40e", "irdma"},         {"qede", "qedr"},
    {"mana", "mana_ib"},      {"hns3", "hns-roce-hw-v2"}};

bool drives_something(const Files& files, const std::string& driver) {
  const auto names = files.names("/sys/bus/pci/drivers/" + driver);
  return std::any_of(names.begin(), names.end(),
                     [](const std::string& name) { return name.find(':') != std::string::npos; });
}

// An interface that Soft-RoCE could sit on.
std::string first_interface(const Files& files) {
  for (const std::string& name : files.names("/sys/class/net")) {
    if (files.exists(fmt::format("/sys/class/net/{}/device", name))) return name;
  }
  return "eth0";
}

std::string on_the_host(bool container, const std::string& command) {
  return container ? "on the host: " + command : command;
}

Finding no_device(const Files& files) {
  const bool container = in_container(files);
  for (const auto& [driver, module] : kRdmaModules) {
    if (!drives_something(files, driver)) continue;
    return {"kernel", Verdict::kMissing,
            fmt::format("no RDMA device, but an adapter of driver {}: {} is not loaded, or the "
                        "adapter cannot do RDMA",
                        driver, module),
            on_the_host(container, fmt::format("modprobe -a ib_uverbs {}", module))};
  }
  const std::string release = files.line("/proc/sys/kernel/osrelease").value_or("");
  const std::string modules = fmt::format("/lib/modules/{}/kernel/drivers/infiniband", release);
  const std::string soft_roce = fmt::format(
      "modprobe rdma_rxe && rdma link add rxe0 type rxe netdev {}", first_interface(files));
  std::string text =
      "no RDMA adapter; none is needed on one host, where softnic serves. Soft-RoCE "
      "would be RDMA in software";
  if (container || files.exists(modules)) {
    return {"kernel", Verdict::kMissing, text, on_the_host(container, soft_roce)};
  }
  return {"kernel", Verdict::kMissing,
          text + fmt::format(", but kernel {} has no RDMA modules", release),
          "a kernel with them (Debian: apt-get install linux-image-amd64, not the cloud flavour), "
          "then " +
              soft_roce};
}

}  // namespace

Finding check_kernel(const Files& files, std::span<const KernelDevice> devices) {
  if (devices.empty()) return no_device(files);
  std::string names;
  for (const KernelDevice& device : devices) {
    if (device.node.empty()) {
      return {"kernel", Verdict::kMissing,
              fmt::format("{} is no device for user space: ib_uverbs is not loaded", device.name),
              on_the_host(in_container(files), "modprobe ib_uverbs")};
    }
    names += (names.empty() ? "" : ", ") + device.name;
  }
  return {"kernel", Verdict::kOk, names};
}

Finding check_node(const KernelDevice& device, int open_error, bool container) {
  Finding finding{device.name + " node", Verdict::kMissing, ""};
  if (device.node.empty()) {
    finding.verdict = Verdict::kSkipped;
    finding.text = "ib_uverbs gives it none";
    return finding;
  }
  const std::string path = "/dev/infiniband/" + device.node;
  const std::string flags = fmt::format(
      "start the container with --device={} --cap-add IPC_LOCK --ulimit memlock=-1", path);
  switch (open_error) {
    case 0:
      finding.verdict = Verdict::kOk;
      finding.text = path + " can be opened";
      return finding;
    case ENOENT:
      finding.text = fmt::format("there is no {}{}", path, container ? " in this container" : "");
      finding.remedy =
          container ? flags
                    : "modprobe ib_uverbs && udevadm trigger --subsystem-match=infiniband_verbs";
      return finding;
    case EPERM:  // the mode lets us, who else does not?
      finding.text = fmt::format("{} is closed to this container's device cgroup", path);
      finding.remedy = flags;
      return finding;
    case EACCES:
      finding.text = fmt::format("its mode does not let this user read and write {}", path);
      finding.remedy = fmt::format(
          "chmod a+rw {} (what the kernel gives it; which udev rule has taken it?)", path);
      return finding;
    default:
      finding.text = error_from_errno(open_error, path).message();
      finding.remedy = "dmesg | grep -i infiniband";
      return finding;
  }
}

Finding check_provider(const KernelDevice& device, int open_error,
                       std::span<const FoundDevice> listed) {
  Finding finding{device.name + " provider", Verdict::kOk, "libibverbs drives it"};
  const bool found = std::any_of(listed.begin(), listed.end(),
                                 [&](const FoundDevice& one) { return one.name == device.name; });
  if (found) return finding;
  if (device.node.empty() || open_error == ENOENT) {
    finding.verdict = Verdict::kSkipped;
    finding.text = "libibverbs passes over devices without a node";
    return finding;
  }
  finding.verdict = Verdict::kMissing;
  finding.text = "libibverbs finds no driver for it";
  finding.remedy = "apt-get install ibverbs-providers";
  return finding;
}

Finding check_taken(const KernelDevice& device, std::span<const FoundDevice> listed) {
  for (const FoundDevice& one : listed) {
    if (one.name != device.name) continue;
    return {device.name, one.usable ? Verdict::kOk : Verdict::kMissing,
            one.usable ? "taken: " + one.why : "not taken: " + one.why};
  }
  return {device.name, Verdict::kMissing, "not taken: libibverbs does not list it"};
}

}  // namespace be::apps::doctor
