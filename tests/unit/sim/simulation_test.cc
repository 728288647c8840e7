#include "be/sim/simulation.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace be::sim {
namespace {

TEST(Simulation, RunsEventsInOrderOfTimeAndThenOfTheirMaking) {
  Simulation simulation(1);
  std::string order;
  simulation.after(2us, [&] { order += 'c'; });
  simulation.after(1us, [&] {
    order += 'a';
    simulation.after(0ns, [&] { order += 'b'; });
  });
  simulation.after(2us, [&] { order += 'd'; });
  while (simulation.step()) {
  }
  EXPECT_EQ(order, "abcd");
  EXPECT_EQ(simulation.now(), Time(2us));
}

TEST(Simulation, RunUntilStopsAtTheDeadlineAndLeavesLaterEvents) {
  Simulation simulation(1);
  int ran = 0;
  simulation.after(1ms, [&] { ++ran; });
  simulation.after(3ms, [&] { ++ran; });
  EXPECT_FALSE(simulation.run_until([] { return false; }, Time(2ms)));
  EXPECT_EQ(ran, 1);
  EXPECT_EQ(simulation.now(), Time(2ms));
  EXPECT_TRUE(simulation.run_until([&] { return ran == 2; }, kNever));
}

TEST(Simulation, AViolationEndsTheRunAndTheFirstOneIsKept) {
  Simulation simulation(1);
  simulation.after(1us, [&] {
    simulation.violate("first");
    simulation.violate("second");
  });
  simulation.after(2us, [] { FAIL() << "after the violation"; });
  EXPECT_FALSE(simulation.run_until([] { return false; }, kNever));
  EXPECT_EQ(simulation.violation(), "first");
}

TEST(Random, SameSeedGivesTheSameDrawsAndAForkAnotherStream) {
  Random a(7);
  Random b(7);
  Random other = a.fork();
  static_cast<void>(b.fork());
  for (int i = 0; i < 100; ++i) {
    const uint64_t draw = a.next();
    EXPECT_EQ(draw, b.next());
    EXPECT_NE(draw, other.next());
  }
}

TEST(Random, SpreadReachesBothEndsAndStaysBetween) {
  Random random(3);
  bool low = false;
  bool high = false;
  for (int i = 0; i < 10000; ++i) {
    const uint64_t value = random.spread(2, 64);
    ASSERT_GE(value, 2u);
    ASSERT_LE(value, 64u);
    low |= value == 2;
    high |= value == 64;
  }
  EXPECT_TRUE(low && high);
}

TEST(Trace, HashDependsOnEveryHappeningAndTheLastOnesAreKept) {
  Trace a;
  Trace b;
  for (uint64_t i = 0; i < 100; ++i) a.note(Time(1us), Happening::kPost, 1, i, 0);
  for (uint64_t i = 0; i < 100; ++i) b.note(Time(1us), Happening::kPost, 1, i, i == 40 ? 1 : 0);
  EXPECT_NE(a.hash(), b.hash());
  EXPECT_EQ(a.last().size(), 64u);
  EXPECT_NE(a.last().back().find("post"), std::string::npos);
}

}  // namespace
}  // namespace be::sim
