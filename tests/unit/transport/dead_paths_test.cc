// Paths on which set-up goes well and packets vanish: TCP serves, and now and then they are tried.
#include "be/transport/connector_paths.h"
#include "virtual_pair.h"

namespace be::test {
namespace {

using ::testing::HasSubstr;

class Paths : public ::testing::Test {
 protected:
  bool dead(size_t device = 0) const { return !paths.check(address, device, now).ok(); }
  void unheard() { paths.engine_ended(address, 0, false, now); }
  // How long it is dead from now on.
  Nanoseconds pause() {
    const Time begin = now;
    while (dead()) now += 1s;
    return now - begin;
  }

  const Address address = *Address::parse("10.0.0.2:9000");
  DeadPaths paths;
  Time now{1h};
};

TEST_F(Paths, OneEngineWithoutAWordIsNoProof) {
  unheard();
  EXPECT_FALSE(dead());
  paths.engine_ended(address, 0, true, now);
  unheard();
  EXPECT_FALSE(dead());
}

TEST_F(Paths, TwoInARowAreAndTheCauseIsNamed) {
  unheard();
  unheard();
  EXPECT_TRUE(dead());
  const Status why = paths.check(address, 0, now);
  EXPECT_EQ(why.code(), Code::kUnavailable);
  EXPECT_THAT(why.message(), HasSubstr("the last 2 engines ended without a word from there"));
  EXPECT_FALSE(dead(1)) << "another device";
  EXPECT_TRUE(paths.check(*Address::parse("10.0.0.3:9000"), 0, now).ok()) << "another peer";
}

TEST_F(Paths, EachFurtherTryInVainDoublesThePauseUpToTheLongest) {
  unheard();
  unheard();
  for (Nanoseconds expected = DeadPaths::kFirst; expected < DeadPaths::kLongest; expected *= 2) {
    EXPECT_EQ(pause(), expected);
    unheard();
  }
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(pause(), DeadPaths::kLongest);
    unheard();
  }
}

TEST_F(Paths, OneEngineThatHeardSomethingMakesItAliveAgain) {
  for (int i = 0; i < 5; ++i) unheard();
  pause();
  paths.engine_ended(address, 0, true, now);
  EXPECT_FALSE(dead());
  unheard();
  EXPECT_FALSE(dead());
}

class LostPackets : public VirtualPair {
 protected:
  LostPackets() { patient.connect_timeout = kPatience; }

  TransportKind transport_of_a_call() {
    Recorder& handler = connect(patient);
    EXPECT_EQ(handler.opened, 1) << handler.close_status.to_string();
    if (handler.opened == 0) return TransportKind::kHardware;  // not possible here
    const TransportKind transport = handler.socket->transport();
    expect_echo(handler, "hello");
    close(handler);
    return transport;
  }
  void expect_unheard() {
    Recorder& handler = connect(patient);
    EXPECT_EQ(handler.opened, 0);
    EXPECT_THAT(handler.close_status.message(), HasSubstr("IBV_WC_RETRY_EXC_ERR"));
  }

  SocketOptions patient;
};

TEST_F(LostPackets, EndInTcpAndLaterInAnEngineAgain) {
  start();
  client->device->lose_packets(true);
  expect_unheard();
  expect_unheard();
  const Time dead_since = simulation.now();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(transport_of_a_call(), TransportKind::kTcp);
  EXPECT_LT(simulation.now() - dead_since, 100ms) << "nobody waits for engines";

  // Tried again, still in vain: twice as long.
  pass(DeadPaths::kFirst);
  expect_unheard();
  pass(DeadPaths::kFirst);
  EXPECT_EQ(transport_of_a_call(), TransportKind::kTcp);

  client->device->lose_packets(false);
  pass(DeadPaths::kFirst);
  EXPECT_EQ(transport_of_a_call(), TransportKind::kSimulated);
  EXPECT_TRUE(until([&] { return client->device->created().queue_pairs == 1; }));
  EXPECT_TRUE(until([&] { return server->device->created().queue_pairs == 1; }));
}

// Who asks for RDMA by name wants to hear why there is none.
TEST_F(LostPackets, AreNamedEachTimeToWhoWantsNothingElse) {
  start();
  client->device->lose_packets(true);
  patient.transport = TransportChoice::kRdma;
  for (int i = 0; i < 4; ++i) expect_unheard();
}

}  // namespace
}  // namespace be::test
