// byteexpress doctor: what stands between this machine and working RDMA, and what mends it.
#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "apps/commands.h"
#include "apps/doctor_examination.h"
#include "apps/doctor_finding.h"
#include "apps/doctor_loopback.h"
#include "apps/host_name.h"
#include "apps/output_file.h"
#include "be/memory/registered_pool.h"
#include "be/verbs/hardware/port.h"
#include "be/verbs/hardware_device.h"

namespace be::apps {
namespace {

using namespace doctor;

struct Attempt {
  DeviceKind kind = DeviceKind::kHardware;
  std::string device;
  Result<Loopback> result;
};

Result<Machine> this_machine(const Settings& settings) {
  BE_ASSIGN_OR_RETURN(const auto pool, RegisteredPool::create(settings.node.memory));
  const uint64_t cap_bytes = pool->stats().cap_bytes;
  return Machine{.files = Files(),
                 .addresses = hardware::local_addresses(),
                 .listed = list_hardware_devices(cap_bytes),
                 .memlock = hardware::memlock_of_this_process(),
                 .cap_bytes = cap_bytes,
                 .huge_pages = settings.node.memory.huge_pages,
                 .traffic_class = settings.node.hardware.traffic_class};
}

std::vector<Attempt> try_devices(const Machine& machine, const Settings& settings) {
  std::vector<Attempt> attempts;
  const auto attempt = [&](DeviceKind kind, const std::string& name) {
    attempts.push_back({kind, name, run_loopback(kind, name, settings.node)});
  };
  for (const FoundDevice& one : machine.listed) {
    if (one.usable) attempt(DeviceKind::kHardware, one.name);
  }
  attempt(DeviceKind::kSoftnic, "softnic");
  return attempts;
}

Finding finding_of(const Attempt& attempt) {
  const Result<Loopback>& result = attempt.result;
  if (!result.ok()) {
    return {attempt.device + " loopback", Verdict::kMissing, result.status().to_string(),
            "BE_LOG=debug byteexpress doctor (says more)"};
  }
  return {attempt.device + " loopback", Verdict::kOk,
          fmt::format("32 B there and back in {:.1f} us (median of {}, P99 {:.1f}); {} bytes in "
                      "larger messages, identical",
                      result->p50_us, result->round_trips, result->p99_us, result->bytes)};
}

// Names of what works.
std::string working(const std::vector<Attempt>& attempts, DeviceKind kind) {
  std::string names;
  for (const Attempt& attempt : attempts) {
    if (attempt.kind != kind || !attempt.result.ok()) continue;
    names += (names.empty() ? "" : ", ") + attempt.device;
  }
  return names;
}

std::string summary(const std::vector<Attempt>& attempts) {
  const std::string hardware = working(attempts, DeviceKind::kHardware);
  if (!hardware.empty()) return fmt::format("RDMA works: {}.\n", hardware);
  if (working(attempts, DeviceKind::kSoftnic).empty()) {
    return "Neither an RDMA device nor softnic works: everything goes over TCP.\n";
  }
  return "No RDMA device works. softnic works: between processes of one user on one host you need\n"
         "nothing more. Other hosts are reached over TCP.\n";
}

nlohmann::ordered_json json_of(const std::vector<Finding>& findings,
                               const std::vector<Attempt>& attempts) {
  nlohmann::ordered_json json = {
      {"host", host_name()},
      {"hardware_works", !working(attempts, DeviceKind::kHardware).empty()},
      {"softnic_works", !working(attempts, DeviceKind::kSoftnic).empty()},
      {"findings", to_json(findings)}};
  json["loopbacks"] = nlohmann::ordered_json::array();
  for (const Attempt& attempt : attempts) {
    const Loopback loopback = attempt.result.ok() ? *attempt.result : Loopback();
    json["loopbacks"].push_back({{"device", attempt.device},
                                 {"kind", device_kind_name(attempt.kind)},
                                 {"works", attempt.result.ok()},
                                 {"failure", attempt.result.status().message()},
                                 {"round_trips", loopback.round_trips},
                                 {"p50_us", loopback.p50_us},
                                 {"p99_us", loopback.p99_us},
                                 {"bytes", loopback.bytes}});
  }
  return json;
}

Status run_doctor(const std::string& json_path, const Settings& settings) {
  BE_ASSIGN_OR_RETURN(OutputFile json, OutputFile::open(json_path));
  BE_ASSIGN_OR_RETURN(const Machine machine, this_machine(settings));
  std::vector<Finding> findings = examine(machine);
  const std::vector<Attempt> attempts = try_devices(machine, settings);
  for (const Attempt& attempt : attempts) findings.push_back(finding_of(attempt));
  std::printf("%s\n%s", to_text(findings).c_str(), summary(attempts).c_str());
  BE_RETURN_IF_ERROR(json.commit(json_of(findings, attempts).dump(2) + "\n"));
  if (!working(attempts, DeviceKind::kHardware).empty()) return ok_status();
  return Status(Code::kUnsupported, "no RDMA device works here");
}

constexpr const char* kFooter =
    "Looks at the kernel, device nodes, libibverbs, ports, addresses, MTU, memory limits and the\n"
    "fabric settings that the kernel shows, in the order in which they are to be mended, and then\n"
    "sends messages to itself over every device that can be had. Verdicts: ok; warning: works, "
    "but\n"
    "could better; missing: stands in the way; skipped. What mends it follows behind \"->\".\n"
    "Exit codes: 0 an RDMA device works; 1 none does (softnic and TCP may), or the examination\n"
    "itself has failed. docs/hardware.md tells more.";

}  // namespace

void add_doctor(CLI::App& program, Settings& settings, Command& chosen) {
  CLI::App* app = program.add_subcommand(
      "doctor", "Tell what stands between this machine and working RDMA, and what mends it");
  const auto json = std::make_shared<std::string>();
  app->footer(kFooter);
  app->add_option("--json", *json, "write all findings")->type_name("FILE");
  settings.add_options(*app);
  app->callback([json, &settings, &chosen] {
    chosen = [json, &settings] { return run_doctor(*json, settings); };
  });
}

}  // namespace be::apps
