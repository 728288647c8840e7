// Each call that sets up an engine made to fail in turn, at either end: TCP serves, and nothing of
// the engine that did not come to be is left. In virtual time, over a device that fails by order.
#include <string>
#include <tuple>

#include "virtual_pair.h"

namespace be::test {
namespace {

enum class End : uint8_t { kConnector, kListener };

class SetUpFails : public VirtualPair,
                   public ::testing::WithParamInterface<std::tuple<SetUpCall, End>> {
 protected:
  static constexpr int kForEver = 1'000'000;

  // At both ends, soon: what an idle node may have is its port, once made.
  void expect_no_engine() {
    for (VirtualEnd* end : {client.get(), server.get()}) {
      const FaultyDevice::Created& left = end->device->created();
      EXPECT_TRUE(until([&] { return left.queue_pairs == 0; }));
      EXPECT_EQ(left.keepalive_words, 0);
      EXPECT_LE(left.channels, 1);
      EXPECT_EQ(left.channels, left.completion_queues) << "a port is there whole, or not at all";
      EXPECT_EQ(left.thread_domains, 0) << "this device has none";
      EXPECT_EQ(end->node->pool().stats().allocations, 0u);
    }
  }
};

TEST_P(SetUpFails, TcpServesAndNothingLeaks) {
  const auto [call, end] = GetParam();
  start();
  const int client_descriptors = client->open_descriptors();
  const int server_descriptors = server->open_descriptors();
  FaultyDevice& faulty = *(end == End::kConnector ? client : server)->device;

  faulty.fail(call, kForEver);
  for (int round = 0; round < 3; ++round) {
    Recorder& handler = connect();
    ASSERT_EQ(handler.opened, 1) << handler.close_status.to_string();
    EXPECT_EQ(handler.socket->transport(), TransportKind::kTcp);
    expect_echo(handler, "hello");
    close(handler);
    expect_no_engine();
  }
  EXPECT_LE(faulty.failures_left(call), kForEver - 3);

  // By name there is a cause instead.
  Recorder& named = connect({.connect_timeout = kPatience, .transport = TransportChoice::kRdma});
  EXPECT_EQ(named.opened, 0);
  EXPECT_THAT(named.close_status.message(), ::testing::HasSubstr("no rdma engine"));
  expect_no_engine();

  // Mended, it is an engine again.
  faulty.fail(call, 0);
  Recorder& mended = connect();
  ASSERT_EQ(mended.opened, 1) << mended.close_status.to_string();
  EXPECT_EQ(mended.socket->transport(), TransportKind::kSimulated);
  expect_echo(mended, "hello again");
  close(mended);

  // But for the engine and its port everything is where it was.
  EXPECT_EQ(client->device->created().queue_pairs, 1);
  EXPECT_EQ(server->device->created().queue_pairs, 1);
  const int of_engine = 2;  // its channel, and the connection beside it
  EXPECT_EQ(client->open_descriptors(), client_descriptors + of_engine);
  EXPECT_EQ(server->open_descriptors(), server_descriptors + of_engine);
}

std::string name_of_case(const ::testing::TestParamInfo<SetUpFails::ParamType>& which) {
  const bool connector = std::get<1>(which.param) == End::kConnector;
  return std::string(name_of(std::get<0>(which.param))) +
         (connector ? "AtTheConnector" : "AtTheListener");
}

INSTANTIATE_TEST_SUITE_P(EachCall, SetUpFails,
                         ::testing::Combine(::testing::ValuesIn(kSetUpCalls),
                                            ::testing::Values(End::kConnector, End::kListener)),
                         name_of_case);

class BlocksAreNotRegistered : public VirtualPair, public ::testing::WithParamInterface<int> {};

// Without any block there is no memory for TCP either, so these fail a few times only: the pool
// gets over one by itself, four leave no memory for an engine.
TEST_P(BlocksAreNotRegistered, AndEitherTransportServes) {
  start();
  for (VirtualEnd* end : {client.get(), server.get()}) {
    end->device->fail(SetUpCall::kRegisterMemory, GetParam());
  }
  Recorder& handler = connect();
  ASSERT_EQ(handler.opened, 1) << handler.close_status.to_string();
  expect_echo(handler, "hello");
  close(handler);
  for (VirtualEnd* end : {client.get(), server.get()}) {
    EXPECT_EQ(end->device->failures_left(SetUpCall::kRegisterMemory), 0);
  }
}

INSTANTIATE_TEST_SUITE_P(OnceOrMore, BlocksAreNotRegistered, ::testing::Values(1, 4));

}  // namespace
}  // namespace be::test
