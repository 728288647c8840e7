#include "be/ps/parameter_client.h"

#include <limits>

#include "be/ps/initial_values.h"
#include "tests/unit/ps/server_fixture.h"

namespace be::ps {
namespace {

using testing::AllOf;
using testing::HasSubstr;

using ParameterClientTest = ServerTest;

std::vector<float> initial(const RemoteTable& table, Key key) {
  std::vector<float> values(table.spec.dim);
  fill_initial_values(table.spec, table.id, key, values);
  return values;
}

std::vector<float> row_of(const FetchedRows& rows, size_t index) {
  const std::span<const float> row = rows.row(index);
  return {row.begin(), row.end()};
}

TEST_F(ParameterClientTest, FetchGivesEachKeysRowInTheCallersOrderRepetitionsIncluded) {
  start(3, sgd_table(4));
  std::vector<Key> keys;
  for (Key i = 0; i < 500; ++i) keys.push_back(i * i % 101);
  const auto rows = client_->fetch_and_wait(*table_, keys, {});
  ASSERT_TRUE(rows.ok()) << rows.status().to_string();
  for (size_t i = 0; i < keys.size(); ++i) {
    EXPECT_EQ(row_of(*rows, i), initial(*table_, keys[i]));
    EXPECT_TRUE(rows->missing[i]);
  }
}

TEST_F(ParameterClientTest, AFetchTooLongForTheIoThreadIsAnsweredAllTheSame) {
  start(1, sgd_table(1));
  std::vector<Key> keys(100000);
  for (size_t i = 0; i < keys.size(); ++i) keys[i] = i;
  const auto rows = client_->fetch_and_wait(*table_, keys, {});
  ASSERT_TRUE(rows.ok()) << rows.status().to_string();
  for (size_t i = 0; i < keys.size(); ++i) ASSERT_EQ(row_of(*rows, i), initial(*table_, keys[i]));
}

TEST_F(ParameterClientTest, FetchMakesNoRowAndPushMakesThoseOfItsKeys) {
  start(2, sgd_table(1));
  ASSERT_TRUE(client_->fetch_and_wait(*table_, std::vector<Key>{1, 2, 3}, {}).ok());
  EXPECT_EQ(rows(), 0u);
  const auto pushed =
      client_->push_and_wait(*table_, std::vector<Key>{1, 3, 1}, std::vector<float>{1, 1, 1}, {});
  ASSERT_TRUE(pushed.ok()) << pushed.status().to_string();
  EXPECT_EQ(pushed->keys, 2u);
  EXPECT_EQ(pushed->created, 2u);
  EXPECT_EQ(rows(), 2u);
  const auto fetched = client_->fetch_and_wait(*table_, std::vector<Key>{1, 2, 3}, {});
  ASSERT_TRUE(fetched.ok());
  EXPECT_EQ(fetched->missing, (std::vector<bool>{false, true, false}));
}

TEST_F(ParameterClientTest, GradientsOfEqualKeysAreAddedBeforeTheOptimizerRuns) {
  TableSpec spec = sgd_table(2);
  spec.optimizer.kind = OptimizerKind::kAdagrad;
  start(2, spec);
  const std::vector<Key> keys = {9, 4, 9};
  const std::vector<float> gradients = {1, 2, 10, 20, 3, 4};
  ASSERT_TRUE(client_->push_and_wait(*table_, keys, gradients, {}).ok());
  std::vector<float> expected = initial(*table_, 9);
  std::vector<float> state(2);
  spec.optimizer.init_state(state);
  spec.optimizer.apply(expected, state, std::vector<float>{1 + 3, 2 + 4});
  const auto rows = client_->fetch_and_wait(*table_, std::vector<Key>{9}, {});
  ASSERT_TRUE(rows.ok());
  EXPECT_EQ(row_of(*rows, 0), expected);
}

TEST_F(ParameterClientTest, PushesOfOneClientAreAppliedInTheirOrderByAnyNumberOfThreads) {
  TableSpec spec = sgd_table(3);
  spec.optimizer.kind = OptimizerKind::kAdagrad;  // rounds differently in another order
  start(2, spec, {.push_threads = 3});
  std::vector<Key> keys;  // of 64 for a short push, 3,000 for one that leaves the I/O thread
  for (Key key = 0; key < 3000; ++key) keys.push_back(key);
  std::vector<std::vector<float>> expected, state;
  for (const Key key : keys) {
    expected.push_back(initial(*table_, key));
    state.emplace_back(3);
    spec.optimizer.init_state(state.back());
  }
  size_t answered = 0;
  constexpr size_t kPushes = 200;
  for (size_t push = 0; push < kPushes; ++push) {
    std::vector<float> gradients;
    const size_t count = push % 5 == 0 ? keys.size() : 64;
    for (size_t i = 0; i < count; ++i) {
      const float g = static_cast<float>((push * 7 + i * 3) % 23) / 7 - 1.5f;
      gradients.insert(gradients.end(), {g, g * g, -g});
      spec.optimizer.apply(expected[i], state[i], std::span(gradients).last(3));
    }
    ASSERT_TRUE(client_
                    ->push(*table_, std::span(keys).first(count), gradients, {},
                           [&](const Result<PushSummary>& summary) {
                             EXPECT_TRUE(summary.ok()) << summary.status().to_string();
                             ++answered;
                           })
                    .ok());
  }
  client_node_->thread(0).run_until([&] { return answered == kPushes; }, kNever);
  const auto rows = client_->fetch_and_wait(*table_, keys, {});
  ASSERT_TRUE(rows.ok());
  for (size_t i = 0; i < keys.size(); ++i) EXPECT_EQ(row_of(*rows, i), expected[i]) << i;
}

TEST_F(ParameterClientTest, ThreadsOfOneProcessShareAClient) {
  start_servers(2);
  NodeOptions started = tcp_node();
  started.io_threads = 2;
  client_ = connect(started).value();
  table_ = client_->create_table(sgd_table(1)).value();
  const auto workers = kernel_world().executor().start_workers("test", 4).value();
  std::atomic<int> applied{0};
  constexpr int kPushes = 100;
  for (int i = 0; i < kPushes; ++i) {
    workers->submit([&] {
      const auto summary =
          client_->push_and_wait(*table_, std::vector<Key>{1, 2}, std::vector<float>{1, 2}, {});
      if (summary.ok()) ++applied;
      applied.notify_one();
    });
  }
  for (int seen = 0; seen < kPushes; seen = applied) applied.wait(seen);
  const auto rows = client_->fetch_and_wait(*table_, std::vector<Key>{1, 2}, {});
  ASSERT_TRUE(rows.ok());
  EXPECT_FLOAT_EQ(rows->values[0], initial(*table_, 1)[0] - 0.5f * kPushes);
  EXPECT_FLOAT_EQ(rows->values[1], initial(*table_, 2)[0] - 1.0f * kPushes);
}

TEST_F(ParameterClientTest, SeveralTablesAndModelsLiveBesideEachOther) {
  start(1, sgd_table(1));
  TableSpec other = sgd_table(2);
  other.model = "another";
  const RemoteTable* second = client_->create_table(other).value();
  ASSERT_TRUE(client_->push_and_wait(*table_, std::vector<Key>{5}, std::vector<float>{1}, {}).ok());
  const auto rows = client_->fetch_and_wait(*second, std::vector<Key>{5}, {});
  ASSERT_TRUE(rows.ok());
  EXPECT_TRUE(rows->missing[0]);
  EXPECT_EQ(row_of(*rows, 0), initial(*second, 5));
}

TEST_F(ParameterClientTest, CreatingATableAgainIsHarmlessAndWithOtherPropertiesAnError) {
  start(2, sgd_table(3));
  ASSERT_TRUE(client_->push_and_wait(*table_, std::vector<Key>{1}, std::vector<float>(3), {}).ok());
  EXPECT_EQ(client_->create_table(sgd_table(3)).value(), table_);
  EXPECT_EQ(rows(), 1u);
  const Status status = client_->create_table(sgd_table(4)).status();
  EXPECT_EQ(status.code(), Code::kAlreadyExists);
  EXPECT_THAT(status.message(),
              AllOf(HasSubstr("model/table: dim 3"), HasSubstr("model/table: dim 4"),
                    HasSubstr(addresses_[0].to_string())));
}

TEST_F(ParameterClientTest, OpenTableLearnsItsPropertiesAndNamesAWrongName) {
  start(2, sgd_table(3));
  EXPECT_EQ(client_->open_table("model", "table").value()->spec, sgd_table(3));
  const Status status = client_->open_table("model", "tabel").status();
  EXPECT_EQ(status.code(), Code::kNotFound);
  EXPECT_THAT(status.message(),
              AllOf(HasSubstr("no table 'model/tabel'"), HasSubstr("'model/table'")));
}

TEST_F(ParameterClientTest, BadArgumentsAreRefusedByNameAndNeverCallBack) {
  start(1, sgd_table(2));
  const auto never = [](const auto&) { FAIL(); };
  EXPECT_THAT(client_->fetch(*table_, {}, {}, never).message(),
              AllOf(HasSubstr("model/table"), HasSubstr("key count 0")));
  EXPECT_THAT(client_->push(*table_, {}, {}, {}, never).message(), HasSubstr("key count 0"));
  EXPECT_THAT(
      client_->push(*table_, std::vector<Key>{1, 2}, std::vector<float>(3), {}, never).message(),
      AllOf(HasSubstr("model/table"), HasSubstr("3 gradients for 2 keys of dim 2")));
  const std::vector<Key> too_many(Limits().max_keys + 1);
  EXPECT_THAT(client_->fetch(*table_, too_many, {}, never).message(), HasSubstr("1048577 keys"));
}

TEST_F(ParameterClientTest, AListOfServersInTheWrongOrderIsRefusedAtOnce) {
  start_servers(2);
  std::swap(addresses_[0], addresses_[1]);
  const auto client = connect();
  ASSERT_FALSE(client.ok());
  EXPECT_THAT(client.status().message(),
              HasSubstr(addresses_[0].to_string() + " is server 1 of 2"));
}

TEST_F(ParameterClientTest, AServerThatCameBackEmptyIsNamedAndTakesItsTableAgain) {
  start(2, sgd_table(1));
  std::vector<Key> keys;
  for (Key key = 0; key < 50; ++key) keys.push_back(key);
  const std::vector<float> gradients(keys.size(), 1);
  ASSERT_TRUE(client_->push_and_wait(*table_, keys, gradients, {}).ok());

  stop_server(1);
  const auto lost = client_->push_and_wait(*table_, keys, gradients, {});
  ASSERT_FALSE(lost.ok());
  EXPECT_EQ(lost.status().code(), Code::kUnavailable);
  EXPECT_THAT(lost.status().message(),
              AllOf(HasSubstr("push to table 'model/table': server 1"),
                    HasSubstr(addresses_[1].to_string()), HasSubstr("1 of 2 servers applied")));

  servers_[1] = start_server({.server_index = 1, .server_count = 2}, addresses_[1]);
  const auto empty = client_->fetch_and_wait(*table_, keys, {});
  ASSERT_FALSE(empty.ok());
  EXPECT_EQ(empty.status().code(), Code::kNotFound) << empty.status().to_string();
  EXPECT_THAT(empty.status().message(), HasSubstr("fetch from table 'model/table': server 1"));

  ASSERT_TRUE(client_->create_table(table_->spec).ok());
  const auto rows = client_->fetch_and_wait(*table_, keys, {});
  ASSERT_TRUE(rows.ok()) << rows.status().to_string();
  for (size_t i = 0; i < keys.size(); ++i) {
    const bool on_restarted = View::uniform(1, 2).value().owner_of(keys[i]) == 1;
    EXPECT_EQ(rows->missing[i], on_restarted);
    EXPECT_FLOAT_EQ(rows->values[i], initial(*table_, keys[i])[0] - (on_restarted ? 0.0f : 1.0f));
  }
}

TEST_F(ParameterClientTest, AtTheClientsMemoryCapAnOperationFailsByNameAndTheNextSucceeds) {
  start(1, sgd_table(1000));
  std::vector<Key> keys(20000);
  for (size_t i = 0; i < keys.size(); ++i) keys[i] = i;
  const std::vector<float> gradients(keys.size() * 1000);  // 80 MB
  const auto push = [&](size_t count) {
    return client_->push_and_wait(*table_, std::span(keys).first(count),
                                  std::span(gradients).first(count * 1000), {});
  };
  EXPECT_THAT(push(20000).status().message(),
              AllOf(HasSubstr("bytes, more than the 33554432"), HasSubstr("memory.cap_bytes")));
  {
    const Buffer other_use = client_node_->pool().allocate_buffer(size_t{20} << 20).value();
    const Status capped = push(4000).status();  // 16 MB; the node's cap is 32 MiB
    EXPECT_EQ(capped.code(), Code::kResourceExhausted) << capped.to_string();
    EXPECT_THAT(capped.message(), AllOf(HasSubstr("model/table"), HasSubstr("cap")));
  }
  EXPECT_TRUE(push(4000).ok());
}

TEST_F(ParameterClientTest, AtTheServersMemoryCapAnOperationFailsByNameAndTheNextSucceeds) {
  start(1, sgd_table(1000));
  std::vector<Key> keys(4000);  // the answer is 16 MB
  for (size_t i = 0; i < keys.size(); ++i) keys[i] = i;
  {
    const Buffer other_use = servers_[0].node->pool().allocate_buffer(size_t{20} << 20).value();
    const Status capped = client_->fetch_and_wait(*table_, keys, {}).status();
    EXPECT_EQ(capped.code(), Code::kResourceExhausted) << capped.to_string();
    EXPECT_THAT(capped.message(),
                AllOf(HasSubstr("model/table"), HasSubstr("server 0"), HasSubstr("cap")));
  }
  EXPECT_TRUE(client_->fetch_and_wait(*table_, keys, {}).ok());
}

TEST_F(ParameterClientTest, DestroyingAClientEndsItsOperations) {
  start(1, sgd_table(1));
  int ended = 0;
  for (int i = 0; i < 10; ++i) {
    ASSERT_TRUE(client_
                    ->fetch(*table_, std::vector<Key>{1}, {},
                            [&](const Result<FetchedRows>& rows) {
                              EXPECT_EQ(rows.status().code(), Code::kCancelled);
                              ++ended;
                            })
                    .ok());
  }
  client_.reset();
  EXPECT_EQ(ended, 10);
}

}  // namespace
}  // namespace be::ps
