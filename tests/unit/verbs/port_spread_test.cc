// Queue pairs over the ports of a bonded adapter.
#include "be/verbs/hardware/port_spread.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace be::hardware {
namespace {

using ::testing::ElementsAre;

TEST(PortSpread, CountsDifferByAtMostOneWhileQueuePairsCome) {
  PortSpread spread(3);
  std::vector<uint8_t> ports;
  for (int i = 0; i < 7; ++i) ports.push_back(spread.take());
  EXPECT_THAT(ports, ElementsAre(1, 2, 3, 1, 2, 3, 1));
  EXPECT_THAT(spread.queue_pairs(), ElementsAre(3, 2, 2));
}

TEST(PortSpread, FillsTheGapsOfThoseThatHaveGone) {
  PortSpread spread(2);
  for (int i = 0; i < 8; ++i) spread.take();
  for (int i = 0; i < 3; ++i) spread.give_back(2);
  EXPECT_THAT(spread.queue_pairs(), ElementsAre(4, 1));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(spread.take(), 2);
  EXPECT_THAT(spread.queue_pairs(), ElementsAre(4, 4));
}

TEST(PortSpread, OfOnePortHasNoChoiceAndOfNoneNothing) {
  PortSpread one(1);
  EXPECT_EQ(one.take(), 1);
  EXPECT_EQ(one.take(), 1);
  EXPECT_EQ(PortSpread(0).ports(), 0u);
}

}  // namespace
}  // namespace be::hardware
