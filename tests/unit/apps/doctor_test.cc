// `byteexpress doctor` on machines that are made up of files.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>

#include "apps/doctor_access.h"
#include "apps/doctor_examination.h"
#include "apps/doctor_fabric.h"
#include "apps/doctor_loopback.h"
#include "apps/doctor_ports.h"
#include "apps/doctor_process.h"

namespace be::apps::doctor {
namespace {

using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::Field;
using testing::HasSubstr;

constexpr uint64_t kCap = uint64_t{1} << 30;

hardware::LocalAddress address(uint32_t interface, const char* text) {
  hardware::LocalAddress local{.interface_index = interface};
  EXPECT_EQ(::inet_pton(AF_INET6, text, local.address.raw), 1) << text;
  return local;
}

// A folder that looks like the root of a machine: bare, with a kernel that has RDMA modules.
class Doctor : public testing::Test {
 protected:
  Doctor()
      : root_(std::filesystem::temp_directory_path() /
              ("be_doctor_" + std::to_string(::getpid()))) {
    write("/proc/sys/kernel/osrelease", "6.1.0-31-amd64");
    write("/sys/kernel/mm/transparent_hugepage/shmem_enabled",
          "always within_size advise [never] deny force");
    write("/sys/class/net/eth2/ifindex", "2");
    write("/sys/class/net/eth2/mtu", "9000");
    write("/sys/class/net/eth2/device/vendor", "0x15b3");
    machine_.files = Files(root_);
    machine_.memlock = {.limit_bytes = UINT64_MAX};
    machine_.cap_bytes = kCap;
  }
  ~Doctor() override { std::filesystem::remove_all(root_); }

  void write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text << "\n";
  }

  // What all kinds of device have, with one port that is up.
  void add_device(const std::string& name, const std::string& node, const std::string& link_layer) {
    const std::string port = "/sys/class/infiniband/" + name + "/ports/1";
    write(port + "/state", "4: ACTIVE");
    write(port + "/phys_state", "5: LinkUp");
    write(port + "/link_layer", link_layer);
    write(port + "/rate", "100 Gb/sec (4X EDR)");
    write("/sys/class/infiniband_verbs/" + node + "/ibdev", name);
    write("/dev/infiniband/" + node, "");
    machine_.listed.push_back(
        {.name = name, .usable = true, .why = "port 1, ...", .mtu_bytes = 4096});
  }

  void add_gid(const std::string& device, int index, const std::string& gid,
               const std::string& type) {
    const std::string port = "/sys/class/infiniband/" + device + "/ports/1";
    write(port + "/gids/" + std::to_string(index), gid);
    write(port + "/gid_attrs/types/" + std::to_string(index), type);
    write(port + "/gid_attrs/ndevs/" + std::to_string(index), "eth2");
  }

  // As an mlx5 adapter on Ethernet has them.
  void add_mlx5() {
    add_device("mlx5_0", "uverbs0", "Ethernet");
    add_gid("mlx5_0", 0, "fe80:0000:0000:0000:0000:0000:0000:0001", "IB/RoCE v1");
    add_gid("mlx5_0", 1, "fe80:0000:0000:0000:0000:0000:0000:0001", "RoCE v2");
    add_gid("mlx5_0", 2, "0000:0000:0000:0000:0000:ffff:0a00:0002", "IB/RoCE v1");
    add_gid("mlx5_0", 3, "0000:0000:0000:0000:0000:ffff:0a00:0002", "RoCE v2");
    add_gid("mlx5_0", 4, "0000:0000:0000:0000:0000:ffff:0a00:0063",
            "RoCE v2");  // another namespace
    add_gid("mlx5_0", 5, "0000:0000:0000:0000:0000:0000:0000:0000", "IB/RoCE v1");
    machine_.addresses = {address(2, "fe80::1"), address(2, "::ffff:10.0.0.2")};
  }

  Finding finding(const std::string& subject) {
    for (const Finding& one : examine(machine_)) {
      if (one.subject == subject) return one;
    }
    ADD_FAILURE() << "nothing is said of " << subject << ":\n" << to_text(examine(machine_));
    return {};
  }

  KernelDevice device(const std::string& name) {
    for (const KernelDevice& one : read_devices(machine_.files)) {
      if (one.name == name) return one;
    }
    ADD_FAILURE() << "no device " << name;
    return {};
  }

  const std::string root_;
  Machine machine_;
};

TEST_F(Doctor, OnAMachineWithoutAnyDeviceSaysThatSoftnicNeedsNone) {
  std::filesystem::create_directories(root_ +
                                      "/lib/modules/6.1.0-31-amd64/kernel/drivers/infiniband");
  const Finding kernel = finding("kernel");
  EXPECT_EQ(kernel.verdict, Verdict::kMissing);
  EXPECT_THAT(kernel.text, HasSubstr("none is needed on one host, where softnic serves"));
  EXPECT_EQ(kernel.remedy, "modprobe rdma_rxe && rdma link add rxe0 type rxe netdev eth2");
  EXPECT_EQ(examine(machine_).size(), 4u) << to_text(examine(machine_));
}

TEST_F(Doctor, NamesTheKernelThatHasNoRdmaModules) {
  const Finding kernel = finding("kernel");
  EXPECT_THAT(kernel.text, HasSubstr("kernel 6.1.0-31-amd64 has no RDMA modules"));
  EXPECT_THAT(kernel.remedy, HasSubstr("apt-get install linux-image-amd64"));
}

TEST_F(Doctor, NamesTheModuleOfAnAdapterThatIsThere) {
  write("/sys/bus/pci/drivers/mlx5_core/module", "");
  EXPECT_THAT(finding("kernel").text, HasSubstr("no RDMA adapter")) << "of a driver without any";
  write("/sys/bus/pci/drivers/mlx5_core/0000:86:00.0/vendor", "0x15b3");
  EXPECT_EQ(finding("kernel").remedy, "modprobe -a ib_uverbs mlx5_ib");
  write("/.dockerenv", "");
  EXPECT_EQ(finding("kernel").remedy, "on the host: modprobe -a ib_uverbs mlx5_ib");
}

TEST_F(Doctor, FindsNothingToMendOnAWellSetUpMlx5) {
  add_mlx5();
  for (int priority = 0; priority < 8; ++priority) {
    write("/sys/class/net/eth2/ecn/roce_np/enable/" + std::to_string(priority), "1");
    write("/sys/class/net/eth2/ecn/roce_rp/enable/" + std::to_string(priority), "1");
  }
  write("/sys/class/net/eth2/qos/trust", "dscp");
  machine_.traffic_class = 106;
  for (const Finding& one : examine(machine_)) {
    const bool pfc = one.subject == "mlx5_0 port 1 PFC";
    EXPECT_EQ(one.verdict, pfc ? Verdict::kSkipped : Verdict::kOk) << to_text({one});
    EXPECT_EQ(one.remedy.empty(), !pfc) << to_text({one});
  }
  EXPECT_EQ(finding("mlx5_0 port 1").text, "ACTIVE, Ethernet, 100 Gb/sec (4X EDR), interface eth2");
  EXPECT_EQ(finding("mlx5_0 port 1 MTU").text, "4096, on eth2 with MTU 9000");
  EXPECT_EQ(finding("mlx5_0 port 1 ECN").text,
            "priority 3 (hardware.traffic_class 106, DSCP 26): the adapter notifies and reacts");
  EXPECT_THAT(finding("mlx5_0 port 1 PFC").text, HasSubstr("the adapter trusts dscp"));
  EXPECT_EQ(finding("mlx5_0 port 1 PFC").remedy, "dcb pfc show dev eth2 (mlx5: mlnx_qos -i eth2)");
}

TEST_F(Doctor, SaysWhichGidIsTakenAndWhyNotTheOthers) {
  add_mlx5();
  EXPECT_EQ(
      finding("mlx5_0 port 1 GID").text,
      "index 3, RoCEv2, ::ffff:10.0.0.2; not 0, 2: RoCEv1; not 1: less routable; not 4: not an "
      "address of this network namespace");
  machine_.addresses = {address(2, "fe80::1")};
  const Finding link_local = finding("mlx5_0 port 1 GID");
  EXPECT_EQ(link_local.verdict, Verdict::kWarning);
  EXPECT_THAT(link_local.text, AllOf(HasSubstr("index 1, RoCEv2, fe80::1"), HasSubstr("routers")));
  machine_.addresses = {address(7, "::ffff:10.9.9.9")};
  const Finding none = finding("mlx5_0 port 1 GID");
  EXPECT_EQ(none.verdict, Verdict::kMissing);
  EXPECT_THAT(none.remedy, HasSubstr("ip address add 10.0.0.1/24 dev eth2"));
}

TEST_F(Doctor, WarnsOfFabricSettingsThatOurPriorityLacks) {
  add_mlx5();
  EXPECT_EQ(finding("mlx5_0 port 1 ECN").text, "not shown by this driver");
  EXPECT_EQ(finding("mlx5_0 port 1 PFC").text, "not shown by this driver");
  machine_.traffic_class = 106;
  write("/sys/class/net/eth2/ecn/roce_np/enable/3", "1");
  write("/sys/class/net/eth2/ecn/roce_rp/enable/3", "0");
  write("/sys/class/net/eth2/qos/trust", "pcp");
  const Finding ecn = finding("mlx5_0 port 1 ECN");
  EXPECT_EQ(ecn.verdict, Verdict::kWarning);
  EXPECT_THAT(ecn.text, HasSubstr("does not react"));
  EXPECT_THAT(ecn.remedy, HasSubstr("/sys/class/net/eth2/ecn/roce_rp/enable/3"));
  EXPECT_EQ(finding("mlx5_0 port 1 PFC").remedy, "mlnx_qos -i eth2 --trust dscp");
}

TEST_F(Doctor, ComparesTheMtuWithThatOfTheInterface) {
  add_mlx5();
  machine_.listed[0].mtu_bytes = 1024;
  EXPECT_THAT(finding("mlx5_0 port 1 MTU").text, HasSubstr("which has room for 4096"));
  write("/sys/class/net/eth2/mtu", "1500");
  const Finding small = finding("mlx5_0 port 1 MTU");
  EXPECT_EQ(small.verdict, Verdict::kWarning);
  EXPECT_THAT(small.remedy, HasSubstr("ip link set eth2 mtu 9000"));
  EXPECT_EQ(roce_mtu_bytes(1500), 1024u);
  EXPECT_EQ(roce_mtu_bytes(4192), 4096u);
  EXPECT_EQ(roce_mtu_bytes(4191), 2048u);
  EXPECT_EQ(roce_mtu_bytes(100), 256u);
}

TEST_F(Doctor, TellsAnInfiniBandPortWithoutASubnetManagerFromOneWithoutACable) {
  add_device("mlx5_0", "uverbs0", "InfiniBand");
  EXPECT_EQ(finding("mlx5_0 port 1").verdict, Verdict::kOk);
  EXPECT_EQ(finding("mlx5_0 port 1 GID").text, "InfiniBand is addressed by LID");
  EXPECT_EQ(finding("mlx5_0 port 1 MTU").text, "4096");
  EXPECT_EQ(finding("mlx5_0 port 1 PFC").verdict, Verdict::kSkipped);
  write("/sys/class/infiniband/mlx5_0/ports/1/state", "2: INIT");
  EXPECT_THAT(finding("mlx5_0 port 1").remedy, HasSubstr("opensm"));
  write("/sys/class/infiniband/mlx5_0/ports/1/state", "1: DOWN");
  write("/sys/class/infiniband/mlx5_0/ports/1/phys_state", "2: Polling");
  EXPECT_THAT(finding("mlx5_0 port 1").remedy, HasSubstr("cable"));
}

TEST_F(Doctor, AsksNothingOfTheFabricForSoftRoce) {
  add_device("rxe0", "uverbs0", "Ethernet");
  write("/sys/class/infiniband/rxe0/parent", "eth2");
  add_gid("rxe0", 1, "0000:0000:0000:0000:0000:ffff:0a00:0002", "RoCE v2");
  machine_.addresses = {address(2, "::ffff:10.0.0.2")};
  EXPECT_THAT(examine(machine_),
              AllOf(Each(Field(&Finding::verdict, Verdict::kOk)),
                    Each(Field(&Finding::subject, testing::Not(HasSubstr("PFC"))))));
  EXPECT_EQ(finding("rxe0").text, "taken: port 1, ...");
}

TEST_F(Doctor, FindsTheInterfaceOfAPortThatHasNoAddress) {
  add_device("rxe0", "uverbs0", "Ethernet");
  write("/sys/class/infiniband/rxe0/parent", "eth2");
  write("/sys/class/infiniband/rxe0/ports/1/state", "1: DOWN");
  EXPECT_THAT(finding("rxe0 port 1").remedy, HasSubstr("ip link set eth2 up"));
  std::filesystem::remove(root_ + "/sys/class/infiniband/rxe0/parent");
  write("/sys/class/infiniband/rxe0/device/net/eth5/dev_port", "0");
  write("/sys/class/infiniband/rxe0/device/net/eth6/dev_port", "1");
  EXPECT_THAT(finding("rxe0 port 1").remedy, HasSubstr("ip link set eth5 up"));
}

TEST_F(Doctor, TellsAContainerHowToBeGivenItsDevice) {
  add_mlx5();
  machine_.listed.clear();  // libibverbs passes over it
  std::filesystem::remove_all(root_ + "/dev");
  EXPECT_THAT(finding("mlx5_0 node").remedy, HasSubstr("modprobe ib_uverbs"));
  write("/run/.containerenv", "");
  const Finding node = finding("mlx5_0 node");
  EXPECT_EQ(node.verdict, Verdict::kMissing);
  EXPECT_EQ(node.text, "there is no /dev/infiniband/uverbs0 in this container");
  EXPECT_THAT(node.remedy, AllOf(HasSubstr("--device=/dev/infiniband/uverbs0"),
                                 HasSubstr("--cap-add IPC_LOCK")));
  EXPECT_EQ(finding("mlx5_0 provider").verdict, Verdict::kSkipped);
  EXPECT_EQ(finding("mlx5_0").verdict, Verdict::kMissing);
  EXPECT_EQ(finding("mlx5_0 port 1 GID").verdict, Verdict::kOk) << "sysfs tells without the node";
}

TEST_F(Doctor, TellsAClosedNodeByWhoClosesIt) {
  add_mlx5();
  const KernelDevice mlx5 = device("mlx5_0");
  EXPECT_THAT(check_node(mlx5, EPERM, true).remedy, HasSubstr("--device=/dev/infiniband/uverbs0"));
  EXPECT_THAT(check_node(mlx5, EACCES, false).remedy,
              HasSubstr("chmod a+rw /dev/infiniband/uverbs0"));
  EXPECT_THAT(check_node(mlx5, ENXIO, false).text, HasSubstr("ENXIO"));
}

TEST_F(Doctor, NamesThePackageOfAMissingProvider) {
  add_mlx5();
  machine_.listed.clear();
  const Finding provider = finding("mlx5_0 provider");
  EXPECT_EQ(provider.verdict, Verdict::kMissing);
  EXPECT_EQ(provider.remedy, "apt-get install ibverbs-providers");
}

TEST_F(Doctor, NamesTheModuleThatMakesDeviceNodes) {
  add_mlx5();
  std::filesystem::remove_all(root_ + "/sys/class/infiniband_verbs");
  EXPECT_EQ(finding("kernel").remedy, "modprobe ib_uverbs");
  EXPECT_EQ(finding("mlx5_0 node").verdict, Verdict::kSkipped);
}

TEST_F(Doctor, SaysHowMuchMayBePinnedAndHowToMakeItFit) {
  EXPECT_EQ(check_memlock({.limit_bytes = UINT64_MAX}, kCap, 2, false).verdict, Verdict::kOk);
  const Finding two = check_memlock({.limit_bytes = 64 << 20}, kCap, 2, false);
  EXPECT_EQ(two.verdict, Verdict::kMissing);
  EXPECT_EQ(
      two.text,
      "RLIMIT_MEMLOCK is 67108864 bytes; memory.cap_bytes lets us pin 2GiB (2 devices pin each "
      "page)");
  EXPECT_THAT(two.remedy,
              AllOf(HasSubstr("ulimit -l unlimited"), HasSubstr("--set memory.cap_bytes=32MiB")));
  const Finding container = check_memlock({.limit_bytes = 64 << 10}, kCap, 1, true);
  EXPECT_THAT(container.remedy,
              AllOf(HasSubstr("--ulimit memlock=-1"), testing::Not(HasSubstr("memory.cap_bytes"))));
  EXPECT_EQ(check_memlock({.limit_bytes = 64 << 10}, kCap, 0, false).verdict, Verdict::kSkipped);
}

TEST_F(Doctor, SaysWhetherHugePagesCanBeHad) {
  const auto transparent = [&] {
    return check_huge_pages(machine_.files, HugePages::kTransparent, kCap);
  };
  const char* shared = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";
  EXPECT_EQ(transparent().verdict, Verdict::kOk);
  write(shared, "always within_size advise never [deny] force");
  EXPECT_THAT(transparent().text, HasSubstr("deny"));
  write(shared, "always within_size advise [never] deny force");
  write("/proc/sys/kernel/osrelease", "5.10.0");
  EXPECT_EQ(transparent().verdict, Verdict::kWarning);
  write(shared, "[always] within_size advise never deny force");
  EXPECT_EQ(transparent().verdict, Verdict::kOk);

  const std::string pages = "/sys/kernel/mm/hugepages/hugepages-2048kB/";
  write(pages + "nr_hugepages", "600");
  write(pages + "free_hugepages", "512");
  EXPECT_EQ(check_huge_pages(machine_.files, HugePages::kReserved, kCap).verdict, Verdict::kOk);
  write(pages + "free_hugepages", "0");
  const Finding reserved = check_huge_pages(machine_.files, HugePages::kReserved, kCap);
  EXPECT_EQ(reserved.verdict, Verdict::kMissing);
  EXPECT_EQ(reserved.remedy, "sysctl vm.nr_hugepages=1112");
}

TEST_F(Doctor, WarnsOfForkWithAnOldKernel) {
  EXPECT_EQ(check_fork(machine_.files).verdict, Verdict::kOk);
  write("/proc/sys/kernel/osrelease", "5.11.22-generic");
  EXPECT_EQ(check_fork(machine_.files).verdict, Verdict::kWarning);
}

TEST(DoctorReport, HasALineForEachFindingAndItsRemedyBelow) {
  const std::vector<Finding> findings = {{"kernel", Verdict::kOk, "mlx5_0"},
                                         {"mlx5_0 node", Verdict::kMissing, "none", "modprobe it"}};
  EXPECT_EQ(to_text(findings),
            "kernel       ok       mlx5_0\n"
            "mlx5_0 node  missing  none\n"
            "                      -> modprobe it\n");
  const auto json = to_json(findings);
  EXPECT_EQ(json[1]["verdict"], "missing");
  EXPECT_EQ(json[1]["remedy"], "modprobe it");
}

TEST(DoctorLoopback, BringsMessagesBackOverSoftnic) {
  const Result<Loopback> result = run_loopback(DeviceKind::kSoftnic, "softnic", {});
  ASSERT_TRUE(result.ok()) << result.status().to_string();
  EXPECT_GT(result->round_trips, 0u);
  EXPECT_GT(result->p50_us, 0);
  EXPECT_GE(result->p99_us, result->p50_us);
  EXPECT_EQ(result->bytes, (1u << 10) + (64u << 10) + (2u << 20));
}

TEST(DoctorLoopback, OverADeviceThatIsNotThereNamesIt) {
  const Result<Loopback> result = run_loopback(DeviceKind::kHardware, "mlx5_77", {});
  EXPECT_EQ(result.status().code(), Code::kNotFound);
  EXPECT_THAT(result.status().message(), HasSubstr("mlx5_77"));
}

}  // namespace
}  // namespace be::apps::doctor
