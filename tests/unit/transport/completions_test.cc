// Completions as bad as they may be: failed ones in which all that need not be valid is garbage,
// and ones that come between the last poll and the arming. In virtual time.
#include <map>
#include <string>

#include "virtual_pair.h"

namespace be::test {
namespace {

using ::testing::HasSubstr;

class Completions : public VirtualPair {
 protected:
  void SetUp() override { start(); }
  std::vector<FaultyDevice*> devices() const { return {client->device, server->device}; }
};

TEST_F(Completions, OfFailedWorkTellTheCauseOnceAndEveryFlushIsCounted) {
  for (FaultyDevice* device : devices()) device->poison_failures(true);
  Recorder& handler = connect();
  ASSERT_EQ(handler.opened, 1);
  constexpr uint64_t kMessages = 24;
  for (uint64_t cookie = 1; cookie <= kMessages; ++cookie) {
    Message message(patterned(*client->node, cookie % 3 == 0 ? 100'000 : 100, 1));
    ASSERT_TRUE(handler.socket->send(message, cookie).ok());
  }
  client->rnic->fail_after(10);
  ASSERT_TRUE(until([&] { return handler.closed == 1; }));
  const Time failed = simulation.now();

  const FaultyDevice::Failures& failures = client->device->failures();
  EXPECT_TRUE(until([&] { return client->device->created().queue_pairs == 0; }));
  // Drained, flush by flush: the bound of a second for queues that do not drain is far away.
  EXPECT_LT(simulation.now() - failed, 100ms);
  EXPECT_EQ(failures.causes, 1);
  EXPECT_GE(failures.flushes, 80) << "all receives at least";

  EXPECT_THAT(handler.close_status.message(), HasSubstr("IBV_WC_LOC_QP_OP_ERR"));
  EXPECT_THAT(handler.close_status.message(), HasSubstr("vendor_err"));
  ASSERT_EQ(handler.sent.size(), kMessages);
  std::map<uint64_t, int> ends;
  for (const auto& [cookie, status] : handler.sent) {
    ++ends[cookie];
    if (!status.ok()) {
      EXPECT_THAT(status.message(), HasSubstr("IBV_WC_LOC_QP_OP_ERR")) << "never a flush";
    }
  }
  EXPECT_EQ(ends.size(), kMessages);
}

// What the peer's failed completions look like is of no consequence at our end either.
TEST_F(Completions, OfALostPathAreNamedByTheirStatus) {
  for (FaultyDevice* device : devices()) {
    device->poison_failures(true);
    device->lose_packets(true);
  }
  Recorder& handler = connect({.connect_timeout = kPatience, .transport = {}});
  EXPECT_EQ(handler.opened, 0);
  EXPECT_THAT(handler.close_status.message(), HasSubstr("IBV_WC_RETRY_EXC_ERR"));
  EXPECT_EQ(client->device->failures().causes, 1);
}

TEST_F(Completions, BetweenTheLastPollAndTheArmingAreDeliveredWithoutFurtherTraffic) {
  Recorder& handler = connect();
  for (FaultyDevice* device : devices()) device->hide_until_armed(true);
  constexpr int kRounds = 500;
  for (int round = 0; round < kRounds; ++round) {
    const Time begin = simulation.now();
    expect_echo(handler, "round " + std::to_string(round));
    // Some sleeps of 50 us; a lost one would wait for the keepalive's next tick, in a second.
    ASSERT_LT(simulation.now() - begin, 20ms) << "round " << round;
  }
  for (FaultyDevice* device : devices()) {
    EXPECT_GE(device->taken_after_arming(), kRounds);
    device->hide_until_armed(false);
  }
}

}  // namespace
}  // namespace be::test
