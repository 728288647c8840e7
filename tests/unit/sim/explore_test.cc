// Whole seeds, and scenarios that a seed has once found.
#include "be/sim/explore.h"

#include <gtest/gtest.h>

#include "be/sim/application.h"
#include "be/sim/cluster.h"

namespace be::sim {
namespace {

void fail_test(const Outcome& outcome) {
  ADD_FAILURE() << "seed " << outcome.seed << ": " << outcome.violation;
  std::abort();  // there is no way back
}

TEST(Explore, SameSeedGivesTheSameTraceTwice) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const Outcome once = run_seed(seed, fail_test);
    const Outcome twice = run_seed(seed, fail_test);
    EXPECT_EQ(once.hash, twice.hash);
    EXPECT_EQ(once.happenings, twice.happenings);
  }
}

TEST(Explore, FirstSeedsAreClean) {
  for (uint64_t seed = 21; seed <= 120; ++seed) run_seed(seed, fail_test);
}

TEST(Explore, SeedsDrawDifferentClusters) {
  EXPECT_NE(run_seed(1, fail_test).hash, run_seed(2, fail_test).hash);
}

class Opening final : public SocketHandler {
 public:
  void on_open(Socket& socket) override {
    ++opened;
    socket.close();
  }
  void on_message(Socket&, Buffer) override {}
  void on_sent(Socket&, uint64_t, const Status&) override {}
  void on_closed(Socket&, const Status& status) override {
    ++closed;
    how = status;
  }
  int opened = 0;
  int closed = 0;
  Status how;
};

// Found by seed 6701: the device broke the queue pair between our Offer and the peer's Answer, the
// link was gone, and its owner went on with it.
TEST(Explore, QueuePairThatBreaksBetweenOfferAndAnswerLeadsToTcp) {
  for (Nanoseconds moment = 0ns; moment < 400us; moment += 5us) {
    Simulation simulation(3);
    Knobs knobs;
    knobs.stream_latency = 20us;
    knobs.hosts.resize(2);
    for (HostKnobs& host : knobs.hosts) {
      host.node.secret = "secret";
      host.node.memory.block_bytes = 64 << 10;
      host.node.memory.cap_bytes = 8 << 20;
    }
    Cluster cluster(simulation, knobs);
    cluster.start_all();
    Opening accepted;
    auto listener = cluster.at(1).node->listen(cluster.at(1).host->address(9000),
                                               [&](Socket&) { return &accepted; });
    ASSERT_TRUE(listener.ok());
    Opening handler;
    SocketOptions options;
    options.connect_timeout = 1s;
    cluster.at(0).node->connect(cluster.at(1).host->address(9000), options, &handler);
    bool over = false;  // the moment may come too late
    simulation.after(moment, [&] {
      if (over) return;
      cluster.at(0).device->break_queue_pairs(error(Code::kDeviceError, "broken by the test"));
    });
    ASSERT_TRUE(cluster.run_until([&] { return handler.closed == 1; }, simulation.now() + 5s));
    EXPECT_TRUE(handler.opened == 1 || !handler.how.ok());
    over = true;
    listener->reset();
    cluster.tear_down();
    EXPECT_EQ(simulation.violation(), "");
  }
}

}  // namespace
}  // namespace be::sim
