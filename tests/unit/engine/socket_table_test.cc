#include "be/engine/socket_table.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace be {
namespace {

TEST(SocketTable, FindsWhatWasAddedAndNothingElse) {
  SocketTable table;
  const uint32_t slot = table.find_or_add(7);
  EXPECT_EQ(table.find(7), slot);
  EXPECT_EQ(table.find_or_add(7), slot);
  EXPECT_EQ(table.find(8), SocketTable::kNone);
  EXPECT_EQ(table.at(slot).id, 7u);
  table.erase(slot);
  EXPECT_EQ(table.find(7), SocketTable::kNone);
  EXPECT_EQ(table.size(), 0u);
}

TEST(SocketTable, AgreesWithAMapOverRandomAddsAndErases) {
  std::mt19937 random(5);
  SocketTable table;
  std::map<SocketId, uint32_t> model;
  for (int step = 0; step < 100000; ++step) {
    // Small ids, and large ones that fall close together.
    const SocketId id = random() % 2 ? random() % 300 : 0xffffff00u + random() % 64;
    if (random() % 2) {
      const uint32_t slot = table.find_or_add(id);
      const auto [it, added] = model.emplace(id, slot);
      ASSERT_EQ(it->second, slot);
    } else if (const auto it = model.find(id); it != model.end()) {
      table.erase(it->second);
      model.erase(it);
    }
    ASSERT_EQ(table.size(), model.size());
    const SocketId probe = random() % 300;
    const auto it = model.find(probe);
    ASSERT_EQ(table.find(probe), it == model.end() ? SocketTable::kNone : it->second);
  }
}

}  // namespace
}  // namespace be
