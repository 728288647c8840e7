// byteexpress devices: what there is to send with, and why each was taken or not.
#include <cstdio>
#include <memory>
#include <utility>
#include <vector>

#include "apps/commands.h"
#include "be/memory/registered_pool.h"
#include "be/softnic/softnic_device.h"
#include "be/verbs/hardware_device.h"

namespace be::apps {
namespace {

FoundDevice find_softnic() {
  FoundDevice found{"softnic", DeviceKind::kSoftnic, false, ""};
  const auto device = open_softnic({});
  found.usable = device.ok();
  found.why = device.ok() ? "shared memory, to processes of this user on this host"
                          : device.status().message();
  return found;
}

Status list_devices() {
  BE_ASSIGN_OR_RETURN(const auto pool, RegisteredPool::create({}));
  std::vector<FoundDevice> found = list_hardware_devices(pool->stats().cap_bytes);
  found.push_back(find_softnic());
  found.push_back({"tcp", {}, true, "the kernel's, to everybody"});
  for (const FoundDevice& device : found) {
    std::printf("%-12s %-10s %s\n", device.name.c_str(), device.usable ? "taken" : "not taken",
                device.why.c_str());
  }
  return ok_status();
}

constexpr const char* kFooter =
    "With --transport auto (the default) two processes use softnic if they run on one host as one\n"
    "user, else the first hardware device that was taken, else TCP.";

}  // namespace

void add_devices(CLI::App& program, Settings&, Command& chosen) {
  CLI::App* app =
      program.add_subcommand("devices", "List RDMA devices and why each is used or not");
  app->footer(kFooter);
  app->callback([&chosen] { chosen = list_devices; });
}

}  // namespace be::apps
