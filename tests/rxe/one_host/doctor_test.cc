// `byteexpress doctor` where RDMA works, and where something stands in its way.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <string>

#include "tests/rxe/common/shell.h"

namespace be {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

struct Outcome {
  int status = -1;
  std::string output;
};

// The program stands beside the test. An emulated machine may stand still for a while.
Outcome doctor(const std::string& options = "") {
  const auto folder = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  const std::string line = (folder / "byteexpress").string() +
                           " doctor --set hardware.ack_timeout=250ms " + options + " 2>&1";
  Outcome outcome;
  FILE* pipe = ::popen(line.c_str(), "r");
  std::array<char, 4096> part;
  while (std::fgets(part.data(), part.size(), pipe) != nullptr) outcome.output += part.data();
  outcome.status = ::pclose(pipe);
  return outcome;
}

TEST(Doctor, FindsThatSoftRoceWorks) {
  const Outcome outcome = doctor();
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_THAT(
      outcome.output,
      AllOf(HasSubstr("RDMA works: rxe0."),
            ContainsRegex("rxe0 port 1 GID +ok +index 1, RoCEv2, ::ffff:10"),
            ContainsRegex("rxe0 port 1 MTU +ok +4096"),
            ContainsRegex("rxe0 loopback +ok +32 B there and back"),
            ContainsRegex("softnic loopback +ok +32 B there and back"), Not(HasSubstr("->"))));
}

// Soft-RoCE has neither PCIe nor ports to spread over: both are asked for in vain, and nothing
// breaks.
TEST(Doctor, OptionsThatADeviceDoesNotKnowAreHarmless) {
  const Outcome outcome =
      doctor("--set hardware.relaxed_ordering=true --set hardware.spread_lag_ports=true");
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_THAT(outcome.output, ContainsRegex("rxe0 loopback +ok"));
}

TEST(Doctor, NamesALinkThatIsDownAndWhatMendsIt) {
  rxe::shell("ip link set $RXE_DEVICE down");
  const Outcome outcome = doctor();
  rxe::shell("ip link set $RXE_DEVICE up");
  EXPECT_NE(outcome.status, 0);
  EXPECT_THAT(outcome.output,
              AllOf(ContainsRegex("rxe0 port 1 +missing +DOWN"), HasSubstr("-> ip link set "),
                    HasSubstr("No RDMA device works.")));
}

TEST(Doctor, NamesADeviceNodeThatIsNotThere) {
  rxe::shell("mv /dev/infiniband/uverbs0 /dev/infiniband/hidden");
  const Outcome outcome = doctor();
  rxe::shell("mv /dev/infiniband/hidden /dev/infiniband/uverbs0");
  EXPECT_NE(outcome.status, 0);
  EXPECT_THAT(outcome.output,
              ContainsRegex("rxe0 node +missing +there is no /dev/infiniband/uverbs0"));
}

}  // namespace
}  // namespace be
