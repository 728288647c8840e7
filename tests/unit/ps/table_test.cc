#include "be/ps/table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <vector>

#include "be/ps/initial_values.h"

namespace be::ps {
namespace {

using testing::HasSubstr;

TableSpec spec_of_dim(uint32_t dim, OptimizerKind kind = OptimizerKind::kSgd) {
  return {"model", "table", dim, {kind, 0.5f, 0.1f}, 0.25f, 7};
}

template <typename T>
Unaligned<T> as_wire(const std::vector<T>& values) {
  return Unaligned<T>({reinterpret_cast<const uint8_t*>(values.data()), values.size() * sizeof(T)});
}

struct Read {
  std::vector<float> values;
  std::vector<uint8_t> bitmap;
  size_t missed;
};

Read read(const Table& table, const std::vector<Key>& keys) {
  Read out{std::vector<float>(keys.size() * table.spec().dim),
           std::vector<uint8_t>((keys.size() + 7) / 8, 0xff), 0};
  out.missed = table.read(as_wire(keys), out.values, out.bitmap);
  return out;
}

size_t push(Table& table, const std::vector<Key>& keys, const std::vector<float>& gradients) {
  return table.apply(as_wire(keys), as_wire(gradients), [](uint32_t) { return true; });
}

TEST(Table, ReadingAKeyWithoutARowGivesItsInitialValuesAndABitAndMakesNoRow) {
  const Table table(spec_of_dim(3));
  const Read got = read(table, {5, 6});
  EXPECT_EQ(got.missed, 2u);
  EXPECT_EQ(got.bitmap[0], 0b11);
  std::vector<float> expected(3);
  fill_initial_values(table.spec(), table.id(), 6, expected);
  EXPECT_EQ(std::vector<float>(got.values.begin() + 3, got.values.end()), expected);
  EXPECT_EQ(table.size().rows, 0u);
}

TEST(Table, TheFirstPushMovesARowFromItsInitialValues) {
  Table table(spec_of_dim(2));
  const std::vector<float> before = read(table, {42}).values;
  EXPECT_EQ(push(table, {42}, {1, -2}), 1u);
  EXPECT_EQ(push(table, {42}, {0, 0}), 0u);
  const Read after = read(table, {42});
  EXPECT_EQ(after.missed, 0u);
  EXPECT_EQ(after.values, (std::vector<float>{before[0] - 0.5f, before[1] + 1.0f}));
  EXPECT_EQ(table.size().rows, 1u);
}

TEST(Table, TheBitmapMarksExactlyTheMissingKeysInTheOrderAsked) {
  Table table(spec_of_dim(1));
  std::vector<Key> pushed, asked;
  for (Key key = 0; key < 20; ++key) {
    asked.push_back(key);
    if (key % 3 == 0) pushed.push_back(key);
  }
  push(table, pushed, std::vector<float>(pushed.size(), 1.0f));
  const Read got = read(table, asked);
  EXPECT_EQ(got.missed, asked.size() - pushed.size());
  for (size_t i = 0; i < asked.size(); ++i) {
    EXPECT_EQ((got.bitmap[i / 8] >> (i % 8)) & 1, asked[i] % 3 == 0 ? 0 : 1) << asked[i];
  }
}

TEST(Table, ManyRowsKeepWhatWasPushedToEach) {
  Table table(spec_of_dim(2, OptimizerKind::kAdagrad));
  constexpr Key kRows = 20000;
  std::map<Key, std::vector<float>> expected;
  for (Key key = 0; key < kRows; ++key) {
    const float gradient = static_cast<float>(key % 17) - 8;
    EXPECT_EQ(push(table, {key * 1000003}, {gradient, 1}), 1u);
    std::vector<float> values(2), state = {0.1f, 0.1f};
    fill_initial_values(table.spec(), table.id(), key * 1000003, values);
    table.spec().optimizer.apply(values, state, std::vector<float>{gradient, 1});
    expected[key * 1000003] = values;
  }
  for (const auto& [key, values] : expected) ASSERT_EQ(read(table, {key}).values, values) << key;
  EXPECT_EQ(table.size().rows, kRows);
  EXPECT_GE(table.size().memory_bytes, kRows * 4 * sizeof(float));
}

TEST(Table, ApplyLeavesTheVirtualShardsThatAreNotWanted) {
  Table table(spec_of_dim(1));
  std::vector<Key> keys;
  for (Key key = 0; key < 200; ++key) keys.push_back(key);
  const std::vector<float> gradients(keys.size(), 1.0f);
  const auto even = [](uint32_t shard) { return shard % 2 == 0; };
  const auto odd = [](uint32_t shard) { return shard % 2 == 1; };
  const size_t evens = table.apply(as_wire(keys), as_wire(gradients), even);
  EXPECT_EQ(read(table, keys).missed, keys.size() - evens);
  EXPECT_EQ(table.apply(as_wire(keys), as_wire(gradients), odd), keys.size() - evens);
  EXPECT_EQ(read(table, keys).missed, 0u);
}

TEST(InitialValues, DependOnSeedTableAndKeyAndStayWithinTheScale) {
  TableSpec spec = spec_of_dim(64);
  std::vector<float> a(64), b(64);
  const auto differ = [&] { return a != b; };
  fill_initial_values(spec, 1, 1, a);
  fill_initial_values(spec, 1, 1, b);
  EXPECT_FALSE(differ());
  fill_initial_values(spec, 1, 2, b);
  EXPECT_TRUE(differ());
  fill_initial_values(spec, 2, 1, b);
  EXPECT_TRUE(differ());
  spec.seed = 8;
  fill_initial_values(spec, 1, 1, b);
  EXPECT_TRUE(differ());
  float low = 0, high = 0;
  for (const float value : a) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
  EXPECT_GE(low, -0.25f);
  EXPECT_LT(high, 0.25f);
  EXPECT_LT(low, -0.15f);
  EXPECT_GT(high, 0.15f);
}

TEST(InitialValues, AreTheSameInEveryVersion) {
  std::vector<float> values(2);
  fill_initial_values(spec_of_dim(2), 3, 4, values);
  EXPECT_EQ(values, (std::vector<float>{-0x1.90e78cp-3f, 0x1.f2a9dp-3f}));
}

TEST(TableSpec, ImpossiblePropertiesAreNamed) {
  EXPECT_TRUE(spec_of_dim(1).check().ok());
  TableSpec spec = spec_of_dim(0);
  EXPECT_THAT(spec.check().message(), HasSubstr("dim 0"));
  spec = spec_of_dim(TableSpec::kMaxDim + 1);
  EXPECT_THAT(spec.check().message(), HasSubstr("dim 4097"));
  spec = spec_of_dim(1);
  spec.name = "a/b";
  EXPECT_THAT(spec.check().message(), HasSubstr("table name 'a/b'"));
  spec = spec_of_dim(1);
  spec.model = "";
  EXPECT_THAT(spec.check().message(), HasSubstr("model name ''"));
  spec = spec_of_dim(1);
  spec.initial_scale = -1;
  EXPECT_THAT(spec.check().message(), HasSubstr("initial_scale -1"));
  spec = spec_of_dim(1);
  spec.optimizer.learning_rate = 0;
  EXPECT_THAT(spec.check().message(), HasSubstr("model/table"));
}

}  // namespace
}  // namespace be::ps
