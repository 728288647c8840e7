// A peer is killed at every failpoint, between any two steps of set-up, post, publish, fetch,
// complete and reset, while traffic of all kinds runs both ways: the survivor's other peer is not
// disturbed, and what the survivor has in use is back at the start within kReturn.
//
// Longer forms: BE_TEST_HITS="1 2 5 20" kills at these passings of each failpoint (else the first
// only); BE_TEST_CYCLES=1000 is the number of kill-and-reconnect cycles.
#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>
#include <iterator>
#include <sstream>

#include "be/base/failpoint.h"
#include "be/base/hash.h"
#include "tests/cluster/common/survivor.h"

namespace be::cluster {
namespace {

constexpr Nanoseconds kReturn = 2s;  // the stated time
constexpr Nanoseconds kReach = 40s;  // a victim that does not come by its failpoint in this time

Traffic::Options to_victims() {
  Traffic::Options options;
  options.call_timeout = 1s;
  return options;
}

int cycles() {
  const char* const wanted = std::getenv("BE_TEST_CYCLES");
  return wanted != nullptr ? std::atoi(wanted) : 15;
}

void expect_undisturbed(const Traffic& traffic) {
  for (const std::string& complaint : traffic.complaints()) ADD_FAILURE() << complaint;
}

#ifdef BE_FAILPOINTS

std::vector<int> hits() {
  const char* const wanted = std::getenv("BE_TEST_HITS");
  std::istringstream text(wanted != nullptr ? wanted : "1");
  return {std::istream_iterator<int>(text), {}};
}

TEST(KilledAnywhere, TheSurvivorsOtherPeersAreUndisturbedAndItsResourcesReturn) {
  Survivor survivor;
  const ResourceUse start = survivor.settled();
  for (const std::string_view name : failpoint::kNames) {
    for (const int hit : hits()) {
      SCOPED_TRACE(testing::Message() << name << ", passing " << hit);
      const uint64_t healthy_before = survivor.healthy().succeeded();
      {
        Victim victim(survivor, {std::string(name), hit, false}, to_victims());
        ASSERT_TRUE(victim.drive_until(ProcessState::kEnded, kReach)) << "it is never reached";
        EXPECT_EQ(victim.end_signal(), SIGKILL);
        victim.drive_until([] { return false; }, 20ms);  // calls to the dead
        EXPECT_TRUE(victim.complaints().empty()) << victim.complaints().front();
      }
      ASSERT_TRUE(survivor.returns_to(start, kReturn));
      EXPECT_GT(survivor.healthy().succeeded(), healthy_before);
    }
  }
  expect_undisturbed(survivor.healthy());
}

#endif

// With failpoints: at one after the other; without: at any moment.
TEST(KilledAnywhere, ManyCyclesOfKillAndReconnectLeaveNothing) {
  Survivor survivor;
  const ResourceUse start = survivor.settled();
  for (int i = 0; i < cycles(); ++i) {
    SCOPED_TRACE(i);
    const uint64_t draw = mix64(static_cast<uint64_t>(i));
    Fate fate;
#ifdef BE_FAILPOINTS
    fate.failpoint = failpoint::kNames[draw % failpoint::kCount];
    fate.hit = static_cast<int>(draw >> 32 & 3) + 1;
#endif
    Victim victim(survivor, fate, to_victims());
    if (fate.failpoint.empty()) {
      // It has begun to talk; then somewhere in its first lives.
      ASSERT_TRUE(victim.drive_until([&] { return victim.succeeded() > 0; }, kReach));
      victim.drive_until([] { return false; }, Nanoseconds(draw % 20'000'000));
      victim.signal(SIGKILL);
    }
    ASSERT_TRUE(victim.drive_until(ProcessState::kEnded, kReach)) << fate.failpoint;
    EXPECT_EQ(victim.end_signal(), SIGKILL);
    EXPECT_TRUE(victim.complaints().empty()) << victim.complaints().front();
  }
  ASSERT_TRUE(survivor.returns_to(start, kReturn));
  expect_undisturbed(survivor.healthy());
}

}  // namespace
}  // namespace be::cluster
