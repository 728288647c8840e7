#include "be/ps/key_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace be::ps {
namespace {

using testing::HasSubstr;

View view_of(uint32_t servers) { return View::uniform(1, servers).value(); }

TEST(KeyPlan, EveryKeyIsAskedForOnceAndFoundAtItsPosition) {
  std::vector<Key> keys;
  for (Key i = 0; i < 1000; ++i) keys.push_back(i * i % 311);
  const KeyPlan plan(keys, view_of(4));
  EXPECT_EQ(std::set<Key>(plan.unique().begin(), plan.unique().end()),
            std::set<Key>(keys.begin(), keys.end()));
  EXPECT_EQ(plan.unique().size(), std::set<Key>(keys.begin(), keys.end()).size());
  ASSERT_EQ(plan.size(), keys.size());
  for (size_t i = 0; i < keys.size(); ++i) EXPECT_EQ(plan.unique()[plan.position(i)], keys[i]);
}

TEST(KeyPlan, PartsCoverTheKeysByOwnerWithVirtualShardsTogether) {
  std::vector<Key> keys;
  for (Key i = 0; i < 500; ++i) keys.push_back(i);
  const View view = view_of(3);
  const KeyPlan plan(keys, view);
  ASSERT_EQ(plan.parts().size(), 3u);
  uint32_t next = 0;
  for (const KeyPlan::Part& part : plan.parts()) {
    EXPECT_EQ(part.first, next);
    next += part.count;
    std::set<uint32_t> ended;
    uint32_t current = kVirtualShards;
    for (const Key key : plan.keys_of(part)) {
      EXPECT_EQ(view.owner_of(key), part.server);
      if (virtual_shard_of(key) == current) continue;
      ended.insert(current);
      current = virtual_shard_of(key);
      EXPECT_FALSE(ended.contains(current));
    }
  }
  EXPECT_EQ(next, plan.unique().size());
}

TEST(KeyPlan, ServersWithoutKeysGetNoPart) {
  const std::vector<Key> keys = {7, 7, 7};
  const KeyPlan plan(keys, view_of(4));
  ASSERT_EQ(plan.parts().size(), 1u);
  EXPECT_EQ(plan.parts()[0].count, 1u);
  EXPECT_EQ(plan.parts()[0].server, view_of(4).owner_of(7));
}

TEST(View, SpreadsVirtualShardsAndKeysOverAllServers) {
  const View view = view_of(4);
  std::vector<int> shards(4), keys(4);
  for (uint32_t shard = 0; shard < kVirtualShards; ++shard) ++shards[view.owner(shard)];
  EXPECT_EQ(shards, (std::vector<int>{16, 16, 16, 16}));
  for (Key key = 0; key < 40000; ++key) ++keys[view.owner_of(key)];
  for (const int count : keys) EXPECT_NEAR(count, 10000, 500);
}

TEST(View, ImpossibleNumbersOfServersAreNamed) {
  EXPECT_THAT(View::uniform(1, 0).status().message(), HasSubstr("0 servers"));
  EXPECT_THAT(View::uniform(1, 65).status().message(), HasSubstr("65 servers"));
  EXPECT_THAT(View::uniform(0, 1).status().message(), HasSubstr("version 0"));
}

}  // namespace
}  // namespace be::ps
