// What of the hardware device needs no hardware: choosing a GID, the endpoint's bytes, MTU,
// inline steps, and the list on a host of any kind.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <random>
#include <vector>

#include "be/verbs/hardware/device.h"
#include "be/verbs/hardware/endpoint.h"
#include "be/verbs/hardware/gid_selection.h"
#include "be/verbs/hardware/memlock.h"
#include "be/verbs/hardware/queue_pair_states.h"
#include "be/verbs/hardware_device.h"

namespace be {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;
using namespace hardware;

ibv_gid gid(const char* text) {
  ibv_gid value{};
  EXPECT_EQ(::inet_pton(AF_INET6, text, value.raw), 1) << text;
  return value;
}

ibv_gid_entry entry(const char* text, uint32_t index, uint32_t type = IBV_GID_TYPE_ROCE_V2) {
  return {.gid = gid(text), .gid_index = index, .port_num = 1, .gid_type = type, .ndev_ifindex = 2};
}

// Addresses of the interface that entry() names.
std::vector<LocalAddress> ours(const std::vector<const char*>& addresses) {
  std::vector<LocalAddress> local;
  for (const char* address : addresses) {
    local.push_back({.interface_index = 2, .address = gid(address)});
  }
  return local;
}

TEST(GidSelection, RoutableAddressesComeBeforeLinkLocalOnes) {
  EXPECT_GT(roce_gid_rank(entry("::ffff:10.0.0.2", 0)), roce_gid_rank(entry("2001:db8::2", 0)));
  EXPECT_GT(roce_gid_rank(entry("2001:db8::2", 0)), roce_gid_rank(entry("fe80::2", 0)));
  EXPECT_EQ(roce_gid_rank(entry("fe80::2", 0)), roce_gid_rank(entry("::ffff:169.254.3.4", 0)));
  EXPECT_GT(roce_gid_rank(entry("fe80::2", 0)), 0);
  EXPECT_EQ(roce_gid_rank(entry("::ffff:169.253.3.4", 0)),
            roce_gid_rank(entry("::ffff:10.0.0.2", 0)));
}

TEST(GidSelection, UnusableEntriesAreNeverChosen) {
  EXPECT_EQ(roce_gid_rank(entry("::ffff:10.0.0.2", 0, IBV_GID_TYPE_ROCE_V1)), 0);
  EXPECT_EQ(roce_gid_rank(entry("::", 0)), 0);
  EXPECT_EQ(roce_gid_rank(entry("::ffff:10.0.0.2", 256)), 0) << "the index has 8 bits";
  ibv_gid_entry no_interface = entry("::ffff:10.0.0.2", 0);
  no_interface.ndev_ifindex = 0;
  EXPECT_EQ(roce_gid_rank(no_interface), 0);
  EXPECT_FALSE(choose_roce_gid({}, 1, {}));
  EXPECT_FALSE(choose_roce_gid(std::vector{no_interface}, 1, ours({"::ffff:10.0.0.2"})));
}

TEST(GidSelection, ThePortsBestGidWithTheLowestIndexIsChosen) {
  std::vector<ibv_gid_entry> table = {entry("fe80::1", 0, IBV_GID_TYPE_ROCE_V1),
                                      entry("fe80::1", 1),
                                      entry("::ffff:10.0.0.2", 2, IBV_GID_TYPE_ROCE_V1),
                                      entry("::ffff:10.0.0.9", 5),
                                      entry("::ffff:10.0.0.2", 3),
                                      entry("2001:db8::2", 4)};
  table.push_back(entry("::ffff:10.0.0.7", 1));
  table.back().port_num = 2;
  const auto here =
      ours({"fe80::1", "::ffff:10.0.0.2", "::ffff:10.0.0.9", "2001:db8::2", "::ffff:10.0.0.7"});
  const auto chosen = choose_roce_gid(table, 1, here);
  ASSERT_TRUE(chosen);
  EXPECT_EQ(chosen->gid_index, 3u);
  EXPECT_EQ(gid_to_string(chosen->gid), "::ffff:10.0.0.2");
  EXPECT_EQ(choose_roce_gid(table, 2, here)->gid_index, 1u);
  EXPECT_FALSE(choose_roce_gid(table, 3, here));
}

TEST(GidSelection, AGidOfAnotherNetworkNamespaceIsNeverChosen) {
  const std::vector<ibv_gid_entry> table = {entry("fe80::1", 0), entry("::ffff:10.0.0.77", 1),
                                            entry("2001:db8::2", 2)};
  EXPECT_EQ(choose_roce_gid(table, 1, ours({"::ffff:10.0.0.1", "2001:db8::2"}))->gid_index, 2u);
  EXPECT_EQ(choose_roce_gid(table, 1, ours({"::"}))->gid_index, 0u)
      << "a link-local one needs our interface, and no address";
  auto another_interface = ours({"::ffff:10.0.0.1"});
  another_interface[0].interface_index = 7;
  EXPECT_FALSE(choose_roce_gid(table, 1, another_interface));
}

TEST(GidSelection, AnIpv4AddressIsMapped) {
  EXPECT_EQ(gid_to_string(ipv4_mapped(htonl(0x0a000002))), "::ffff:10.0.0.2");
}

Endpoint roce_endpoint() {
  return {.link_layer = IBV_LINK_LAYER_ETHERNET,
          .mtu = IBV_MTU_4096,
          .queue_pair_number = 0xabcdef,
          .packet_sequence_number = 0x123456,
          .lid = 0,
          .gid = gid("::ffff:10.0.0.2")};
}

TEST(HardwareEndpoint, TellsThePeerEverythingItNeeds) {
  const auto decoded = decode(encode(roce_endpoint()));
  ASSERT_TRUE(decoded.ok()) << decoded.status().to_string();
  EXPECT_EQ(decoded->link_layer, IBV_LINK_LAYER_ETHERNET);
  EXPECT_EQ(decoded->mtu, IBV_MTU_4096);
  EXPECT_EQ(decoded->queue_pair_number, 0xabcdefu);
  EXPECT_EQ(decoded->packet_sequence_number, 0x123456u);
  EXPECT_EQ(gid_to_string(decoded->gid), "::ffff:10.0.0.2");
}

TEST(HardwareEndpoint, EveryOtherLengthIsRefused) {
  const EndpointBlob good = encode(roce_endpoint());
  for (size_t length = 0; length <= kMaxEndpointBytes; ++length) {
    EndpointBlob blob = good;
    blob.resize(length);
    EXPECT_EQ(decode(blob).ok(), length == good.size()) << length;
  }
}

TEST(HardwareEndpoint, ImpossibleFieldsAreNamed) {
  Endpoint endpoint = roce_endpoint();
  endpoint.queue_pair_number = 1u << 24;
  EXPECT_THAT(decode(encode(endpoint)).status().message(), HasSubstr("QP number 16777216"));
  endpoint = roce_endpoint();
  endpoint.packet_sequence_number = 1u << 24;
  EXPECT_THAT(decode(encode(endpoint)).status().message(), HasSubstr("PSN 16777216"));
  for (uint8_t mtu : {0, 6, 255}) {
    EndpointBlob blob = encode(roce_endpoint());
    blob[3] = mtu;
    EXPECT_THAT(decode(blob).status().message(), HasSubstr("MTU"));
  }
  endpoint = roce_endpoint();
  endpoint.gid = {};
  EXPECT_THAT(decode(encode(endpoint)).status().message(), HasSubstr("GID"));
  endpoint.link_layer = IBV_LINK_LAYER_INFINIBAND;
  EXPECT_THAT(decode(encode(endpoint)).status().message(), HasSubstr("LID"));
  endpoint.link_layer = 7;
  EXPECT_THAT(decode(encode(endpoint)).status().message(), HasSubstr("link layer 7"));
  EndpointBlob other_device = encode(roce_endpoint());
  other_device[0] = 'S';
  EXPECT_EQ(decode(other_device).status().code(), Code::kProtocol);
  EndpointBlob other_version = encode(roce_endpoint());
  other_version[1] = 2;
  EXPECT_THAT(decode(other_version).status().message(), HasSubstr("version 2"));
}

TEST(HardwareEndpoint, RandomBytesNeverGiveValuesOutOfBounds) {
  std::mt19937 random(1);
  for (int i = 0; i < 20000; ++i) {
    EndpointBlob blob = encode(roce_endpoint());
    for (int change = 0; change < 3; ++change) {
      blob[random() % blob.size()] = static_cast<uint8_t>(random());
    }
    const auto decoded = decode(blob);
    if (!decoded.ok()) continue;
    EXPECT_LT(decoded->queue_pair_number, 1u << 24);
    EXPECT_LT(decoded->packet_sequence_number, 1u << 24);
    EXPECT_GE(decoded->mtu, IBV_MTU_256);
    EXPECT_LE(decoded->mtu, IBV_MTU_4096);
  }
}

TEST(HardwareEndpoint, InfiniBandAndRoceDoNotReachEachOther) {
  const Endpoint roce = roce_endpoint();
  Endpoint infiniband = roce;
  infiniband.link_layer = IBV_LINK_LAYER_INFINIBAND;
  EXPECT_TRUE(check_reachable(roce, roce).ok());
  EXPECT_EQ(check_reachable(roce, infiniband).code(), Code::kUnsupported);
}

TEST(QueuePairStates, ThePathTakesTheSmallerMtuOfBothEnds) {
  EXPECT_EQ(path_mtu(IBV_MTU_1024, IBV_MTU_4096), IBV_MTU_1024);
  EXPECT_EQ(path_mtu(IBV_MTU_4096, IBV_MTU_1024), IBV_MTU_1024);
  EXPECT_EQ(mtu_bytes(IBV_MTU_256), 256u);
  EXPECT_EQ(mtu_bytes(IBV_MTU_4096), 4096u);
}

TEST(QueuePairStates, TheInlineWishStepsDownToNothing) {
  std::vector<uint32_t> wishes = {512};
  while (wishes.back() != 0) wishes.push_back(next_inline_wish(wishes.back()));
  EXPECT_THAT(wishes, ::testing::ElementsAre(512, 256, 128, 64, 32, 16, 0));
}

TEST(Memlock, IsNamedWithItsValue) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_MEMLOCK, &before), 0);
  const rlimit lowered{.rlim_cur = 4096, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_MEMLOCK, &lowered), 0);
  EXPECT_THAT(to_string(memlock_of_this_process()), StartsWith("RLIMIT_MEMLOCK is 4096 bytes"));
  ASSERT_EQ(::setrlimit(RLIMIT_MEMLOCK, &before), 0);
  if (before.rlim_cur == RLIM_INFINITY) {
    EXPECT_EQ(to_string(memlock_of_this_process()), "RLIMIT_MEMLOCK is unlimited");
  }
}

TEST(Memlock, RootOfARootlessContainerIsNotExempt) {
  const pid_t child = ::fork();
  if (child == 0) {
    if (::unshare(CLONE_NEWUSER) != 0) ::_exit(2);
    ::_exit(memlock_of_this_process().exempt ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  if (WEXITSTATUS(status) == 2) GTEST_SKIP() << "no user namespace can be made here";
  EXPECT_EQ(status, 0);
}

TEST(QueuePairStates, AnAckTimeoutIsNeverShorterThanAskedFor) {
  EXPECT_EQ(ack_timeout_code(67ms), 14);
  EXPECT_EQ(ack_timeout_code(68ms), 15);
  EXPECT_EQ(ack_timeout_code(8192ns), 1);
  EXPECT_EQ(ack_timeout_code(1ns), 1) << "0 is for ever";
  EXPECT_EQ(ack_timeout_code(std::chrono::hours(10)), 31);
}

TEST(Memlock, AllThatMayBeRegisteredMustFitOrBeExempt) {
  constexpr uint64_t kLimit = 64 << 10;
  EXPECT_TRUE(check_memlock({.limit_bytes = kLimit}, kLimit).ok());
  EXPECT_TRUE(check_memlock({.limit_bytes = kLimit, .exempt = true}, kLimit + 1).ok());
  EXPECT_TRUE(check_memlock({.limit_bytes = UINT64_MAX}, uint64_t{1} << 50).ok());
  const Status refused = check_memlock({.limit_bytes = kLimit}, kLimit + 1);
  EXPECT_EQ(refused.code(), Code::kResourceExhausted);
  EXPECT_THAT(refused.message(), HasSubstr("65537 bytes may be registered, but RLIMIT_MEMLOCK is "
                                           "65536 bytes: raise it"));
}

TEST(HardwareDevices, EveryDeviceIsListedWithAReason) {
  const auto found = list_hardware_devices(0);
  ASSERT_FALSE(found.empty());
  size_t usable = 0;
  for (const FoundDevice& device : found) {
    EXPECT_FALSE(device.name.empty());
    EXPECT_FALSE(device.why.empty()) << device.name;
    usable += device.usable;
  }
  EXPECT_EQ(open_hardware_devices({}, 0).size(), usable);
  if (::access("/sys/class/infiniband", F_OK) != 0) {
    ASSERT_EQ(found.size(), 1u);
    EXPECT_FALSE(found[0].usable);
    EXPECT_THAT(found[0].why, HasSubstr("RDMA"));
  }
}

}  // namespace
}  // namespace be
