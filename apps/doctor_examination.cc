#include "apps/doctor_examination.h"

#include <algorithm>
#include <cerrno>
#include <string>

#include "apps/doctor_access.h"
#include "apps/doctor_devices.h"
#include "apps/doctor_fabric.h"
#include "apps/doctor_ports.h"
#include "apps/doctor_process.h"

namespace be::apps::doctor {
namespace {

uint32_t mtu_of(const KernelDevice& device, const std::vector<FoundDevice>& listed) {
  const auto found = std::find_if(listed.begin(), listed.end(),
                                  [&](const FoundDevice& one) { return one.name == device.name; });
  return found == listed.end() ? 0 : found->mtu_bytes;
}

void examine_port(const Machine& machine, const KernelDevice& device, const KernelPort& port,
                  std::vector<Finding>& findings) {
  findings.push_back(check_link(device, port));
  if (!port.active()) return;
  findings.push_back(check_gids(device, port, machine.addresses));
  findings.push_back(check_mtu(machine.files, device, port, mtu_of(device, machine.listed)));
  if (device.software) return;
  findings.push_back(check_pfc(machine.files, device, port, machine.traffic_class));
  findings.push_back(check_ecn(machine.files, device, port, machine.traffic_class));
}

void examine_device(const Machine& machine, const KernelDevice& device, bool container,
                    std::vector<Finding>& findings) {
  const int open_error =
      device.node.empty() ? ENOENT : machine.files.open_error("/dev/infiniband/" + device.node);
  findings.push_back(check_node(device, open_error, container));
  findings.push_back(check_provider(device, open_error, machine.listed));
  for (const KernelPort& port : device.ports) examine_port(machine, device, port, findings);
  findings.push_back(check_taken(device, machine.listed));
}

}  // namespace

std::vector<Finding> examine(const Machine& machine) {
  const std::vector<KernelDevice> devices = read_devices(machine.files);
  const bool container = in_container(machine.files);
  std::vector<Finding> findings;
  findings.push_back(check_kernel(machine.files, devices));
  findings.push_back(check_memlock(machine.memlock, machine.cap_bytes, devices.size(), container));
  for (const KernelDevice& device : devices) {
    examine_device(machine, device, container, findings);
  }
  findings.push_back(check_huge_pages(machine.files, machine.huge_pages, machine.cap_bytes));
  findings.push_back(check_fork(machine.files));
  return findings;
}

}  // namespace be::apps::doctor
