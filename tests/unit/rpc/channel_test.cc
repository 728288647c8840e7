// A Channel against a server played by the test, in virtual time.
#include "be/rpc/channel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "be/rpc/frame.h"
#include "fake_node.h"

namespace be::rpc {
namespace {

using testing::HasSubstr;

const Address kServer = fake_address(9000);
constexpr MethodId kMethod = 0x1234;

// The server's end of every connection: remembers requests, sends what it is told.
struct PlayedServer final : SocketHandler {
  struct Received {
    Socket* socket;
    FrameHeader header;
    Payload payload;
  };

  explicit PlayedServer(FakeNode& at) : node(at) {
    listener = node.listen(kServer, [this](Socket&) { return this; }).value();
  }

  void on_open(Socket&) override {}
  void on_sent(Socket&, uint64_t, const Status&) override {}
  void on_closed(Socket&, const Status&) override { ++closed; }
  void on_message(Socket& socket, Buffer message) override {
    FrameHeader header;
    ASSERT_TRUE(parse_frame(message, header).ok());
    (header.type == FrameType::kCancel ? cancels : requests)
        .push_back({&socket, header, split_frame(header, std::move(message))});
  }

  static void answer(const Received& request, Payload response = {}) {
    FrameHeader header;
    header.type = FrameType::kResponse;
    header.call_id = request.header.call_id;
    Message frame;
    make_frame(frame, header, response);
    ASSERT_TRUE(request.socket->send(frame, 0).ok());
  }

  FakeNode& node;
  std::unique_ptr<Listener> listener;
  std::vector<Received> requests;
  std::vector<Received> cancels;
  int closed = 0;
};

class ChannelTest : public testing::Test {
 protected:
  ChannelTest() { open({}); }
  ~ChannelTest() override {
    channel_.reset();
    node_.run();
    server_.reset();
    ended_.clear();
    EXPECT_EQ(node_.pool().stats().live_bytes, 0u);
  }

  void open(const ChannelOptions& options) { channel_ = Channel::create(node_, kServer, options); }

  Payload body(size_t bytes, uint8_t fill = 'x') {
    Payload payload;
    payload.body = node_.pool().allocate_buffer(bytes).value();
    std::memset(payload.body.data(), fill, bytes);
    return payload;
  }

  // A call whose end is noted in `ended_`, in order.
  CallId call(Payload request = {}, Nanoseconds timeout = {}) {
    const size_t number = ended_.size();
    ended_.emplace_back();
    return channel_->call(kMethod, std::move(request), {timeout}, [this, number](auto answer) {
      EXPECT_FALSE(ended_[number].has_value()) << "ended twice";
      ended_[number].emplace(std::move(answer));
    });
  }

  Code code_of(size_t number) {
    EXPECT_TRUE(ended_[number].has_value()) << "call " << number << " has not ended";
    return ended_[number] ? ended_[number]->status().code() : Code::kInternal;
  }
  std::string text_of(size_t number) { return ended_[number]->status().message(); }

  FakeNode node_;
  std::optional<PlayedServer> server_{node_};
  std::unique_ptr<Channel> channel_;
  std::vector<std::optional<Result<Payload>>> ended_;
};

TEST_F(ChannelTest, ConnectsWithTheFirstCallOnly) {
  node_.run();
  EXPECT_EQ(node_.connects_, 0u);
  EXPECT_EQ(channel_->transport(), std::nullopt);
  call();
  call();
  node_.run();
  EXPECT_EQ(node_.connects_, 1u);
  EXPECT_EQ(channel_->transport(), TransportKind::kTcp);
  EXPECT_EQ(server_->requests.size(), 2u);
}

TEST_F(ChannelTest, TheRequestCarriesMethodBodyAndRemainingTime) {
  call(body(5, 'a'), 40ms);
  node_.run();
  const auto& request = server_->requests.at(0);
  EXPECT_EQ(request.header.method, kMethod);
  EXPECT_EQ(request.header.timeout_us, 40000u);
  EXPECT_EQ(request.payload.body.size(), 5u);
  EXPECT_EQ(request.payload.body.data()[4], 'a');
}

TEST_F(ChannelTest, TimeSpentConnectingCountsForTheRequest) {
  node_.hold_connects_ = true;
  call({}, 100ms);
  node_.advance(30ms);
  node_.hold_connects_ = false;
  node_.run();
  EXPECT_EQ(server_->requests.at(0).header.timeout_us, 70000u);
}

TEST_F(ChannelTest, AnswersReachTheirCallsInAnyOrder) {
  for (int i = 0; i < 3; ++i) call();
  node_.run();
  PlayedServer::answer(server_->requests[2], body(2));
  PlayedServer::answer(server_->requests[0], body(1));
  node_.run();
  ASSERT_TRUE(ended_[0] && ended_[2]);
  EXPECT_FALSE(ended_[1]);
  EXPECT_EQ(ended_[0]->value().body.size(), 1u);
  EXPECT_EQ(ended_[2]->value().body.size(), 2u);
}

TEST_F(ChannelTest, AnErrorResponseIsTheStatusOfTheCall) {
  call();
  node_.run();
  Message frame;
  Buffer none;
  make_error_frame(frame, server_->requests[0].header.call_id,
                   error(Code::kNotFound, "no such table"), node_.pool(), none);
  ASSERT_TRUE(server_->requests[0].socket->send(frame, 0).ok());
  node_.run();
  EXPECT_EQ(code_of(0), Code::kNotFound);
  EXPECT_EQ(text_of(0), "no such table");
}

TEST_F(ChannelTest, ACallEndsAtMostOneTickAfterItsDeadlineWhenNobodyAnswers) {
  call({}, 40ms);
  call();  // the channel's default: 1 s
  node_.run();
  node_.advance(40ms - 1ns);
  EXPECT_FALSE(ended_[0]);
  node_.advance(5ms);
  EXPECT_EQ(code_of(0), Code::kDeadlineExceeded);
  EXPECT_THAT(text_of(0), HasSubstr("no answer from 127.0.0.1:9000"));
  EXPECT_FALSE(ended_[1]);
  node_.advance(960ms);
  EXPECT_EQ(code_of(1), Code::kDeadlineExceeded);
}

TEST_F(ChannelTest, AResponseAfterTheEndIsDroppedAndCounted) {
  call({}, 40ms);
  node_.run();
  node_.advance(50ms);
  PlayedServer::answer(server_->requests[0], body(100));
  node_.run();
  EXPECT_EQ(code_of(0), Code::kDeadlineExceeded);
  EXPECT_EQ(channel_->late_responses(), 1u);
  EXPECT_EQ(channel_->transport(), TransportKind::kTcp) << "the connection goes on";
}

TEST_F(ChannelTest, ALateResponseNeverEndsTheNextCallInItsSlot) {
  call({}, 40ms);
  node_.run();
  node_.advance(50ms);
  call();
  node_.run();
  PlayedServer::answer(server_->requests[0]);
  node_.run();
  EXPECT_FALSE(ended_[1]);
  PlayedServer::answer(server_->requests[1]);
  node_.run();
  EXPECT_EQ(code_of(1), Code::kOk);
}

TEST_F(ChannelTest, DeadlinesPassWhileConnecting) {
  node_.hold_connects_ = true;
  call(body(100), 40ms);
  node_.advance(50ms);
  EXPECT_EQ(code_of(0), Code::kDeadlineExceeded);
  EXPECT_THAT(text_of(0), HasSubstr("not connected"));
  EXPECT_EQ(node_.pool().stats().live_bytes, 0u) << "an unsent request is given back at once";
}

TEST_F(ChannelTest, AllWaitingCallsEndWithTheCauseWhenConnectingFails) {
  server_->listener.reset();
  call();
  call(body(10));
  node_.run();
  for (size_t i : {0, 1}) {
    EXPECT_EQ(code_of(i), Code::kUnavailable);
    EXPECT_EQ(text_of(i), "connect to 127.0.0.1:9000: ECONNREFUSED (Connection refused)");
  }
}

TEST_F(ChannelTest, TheNextCallConnectsAgain) {
  server_->listener.reset();
  call();
  node_.run();
  server_.reset();
  server_.emplace(node_);
  call();
  node_.run();
  PlayedServer::answer(server_->requests.at(0));
  node_.run();
  EXPECT_EQ(code_of(1), Code::kOk);
  EXPECT_EQ(node_.connects_, 2u);
}

TEST_F(ChannelTest, ALostConnectionEndsItsCallsNamingTheCause) {
  call();
  call();
  node_.run();
  node_.sockets_[0]->end_both(error(Code::kUnavailable, "ECONNRESET (Connection reset by peer)"));
  node_.run();
  for (size_t i : {0, 1}) {
    EXPECT_EQ(code_of(i), Code::kUnavailable);
    EXPECT_EQ(text_of(i),
              "connection lost to 127.0.0.1:9000: ECONNRESET (Connection reset by peer)");
  }
  EXPECT_EQ(channel_->transport(), std::nullopt);
}

TEST_F(ChannelTest, ACallMadeFromAFailedCallsCallbackReconnects) {
  call();
  node_.run();
  std::optional<Status> second;
  channel_->call(kMethod, {}, {}, [&](Result<Payload>) {
    channel_->call(kMethod, {}, {}, [&](Result<Payload> answer) { second = answer.status(); });
  });
  node_.run();
  node_.sockets_[0]->end_both(error(Code::kUnavailable, "gone"));
  node_.run();
  EXPECT_EQ(node_.connects_, 2u);
  ASSERT_EQ(server_->requests.size(), 3u);
  EXPECT_FALSE(second);
  PlayedServer::answer(server_->requests[2]);
  node_.run();
  ASSERT_TRUE(second);
  EXPECT_TRUE(second->ok());
}

TEST_F(ChannelTest, CancellingEndsTheCallAndTellsTheServer) {
  const CallId id = call();
  node_.run();
  channel_->cancel(id);
  node_.run();
  EXPECT_EQ(code_of(0), Code::kCancelled);
  ASSERT_EQ(server_->cancels.size(), 1u);
  EXPECT_EQ(server_->cancels[0].header.call_id, id);
  channel_->cancel(id);
  node_.run();
  EXPECT_EQ(server_->cancels.size(), 1u) << "an ended call cannot be cancelled";
}

TEST_F(ChannelTest, AWaitingCallLeavesTheMiddleOfTheQueue) {
  node_.hold_connects_ = true;
  call(body(1));
  const CallId middle = call(body(2));
  call(body(3));
  channel_->cancel(middle);
  node_.hold_connects_ = false;
  node_.run();
  EXPECT_EQ(code_of(1), Code::kCancelled);
  ASSERT_EQ(server_->requests.size(), 2u);
  EXPECT_EQ(server_->requests[0].payload.body.size(), 1u);
  EXPECT_EQ(server_->requests[1].payload.body.size(), 3u);
  EXPECT_TRUE(server_->cancels.empty()) << "the server never knew of it";
}

TEST_F(ChannelTest, CallsWaitInOrderWhileTheSocketIsFull) {
  call();
  node_.run();
  node_.queue_limit_ = 2;
  node_.hold_messages_ = true;
  for (size_t bytes = 1; bytes <= 6; ++bytes) call(body(bytes));
  node_.hold_messages_ = false;
  node_.run();
  ASSERT_EQ(server_->requests.size(), 7u);
  for (size_t i = 1; i <= 6; ++i) EXPECT_EQ(server_->requests[i].payload.body.size(), i);
}

TEST_F(ChannelTest, ACallThatNeverFoundRoomEndsAtItsDeadline) {
  call();
  node_.run();
  node_.queue_limit_ = 0;
  call(body(10), 40ms);
  node_.advance(50ms);
  EXPECT_EQ(code_of(1), Code::kDeadlineExceeded);
  EXPECT_THAT(text_of(1), HasSubstr("the send queue is full"));
}

TEST_F(ChannelTest, ARequestTheTransportNeverTakesFailsAloneAndNotWithinCall) {
  call();
  node_.run();
  call(body(2 << 20));  // the socket's limit is 1 MiB
  EXPECT_FALSE(ended_[1]);
  node_.run();
  EXPECT_EQ(code_of(1), Code::kInvalidArgument);
  EXPECT_FALSE(ended_[0]);
}

TEST_F(ChannelTest, MoreThanMaxOutstandingIsRefusedButNotWithinCall) {
  open({.max_outstanding = 2});
  call();
  call();
  EXPECT_EQ(call(), 0u);
  EXPECT_FALSE(ended_[2]);
  node_.run();
  EXPECT_EQ(code_of(2), Code::kResourceExhausted);
  EXPECT_THAT(text_of(2), HasSubstr("2 calls to 127.0.0.1:9000"));
  PlayedServer::answer(server_->requests[0]);
  node_.run();
  EXPECT_NE(call(), 0u);
}

TEST_F(ChannelTest, LargeRequestsUseASocketOfTheirOwn) {
  open({.bulk_bytes = 1000});
  call(body(1000));
  call(body(1001));
  node_.run();
  EXPECT_EQ(node_.connects_, 2u);
  ASSERT_EQ(server_->requests.size(), 2u);
  EXPECT_NE(server_->requests[0].socket, server_->requests[1].socket);
}

TEST_F(ChannelTest, AMalformedResponseEndsItsConnectionAndTheNextCallReconnects) {
  call();
  node_.run();
  Message nonsense(body(20).body);
  ASSERT_TRUE(server_->requests[0].socket->send(nonsense, 0).ok());
  node_.run();
  EXPECT_EQ(code_of(0), Code::kUnavailable);
  EXPECT_THAT(text_of(0), HasSubstr("20 bytes are less than its header"));
  EXPECT_EQ(server_->closed, 1);
  call();
  node_.run();
  EXPECT_EQ(node_.connects_, 2u);
  PlayedServer::answer(server_->requests.at(1));
  node_.run();
  EXPECT_EQ(code_of(1), Code::kOk);
}

TEST_F(ChannelTest, DestructionEndsAllCallsWithCancelledBeforeItReturns) {
  call();
  node_.run();
  node_.queue_limit_ = 1;
  node_.hold_messages_ = true;
  call(body(1));
  call(body(2));  // waits for room
  channel_.reset();
  for (size_t i : {0, 1, 2}) EXPECT_EQ(code_of(i), Code::kCancelled);
  node_.hold_messages_ = false;
  node_.run();
  EXPECT_EQ(server_->closed, 1);
}

TEST_F(ChannelTest, AChannelDestroyedWhileConnectingClosesWhatOpensLater) {
  node_.hold_connects_ = true;
  call();
  channel_.reset();
  EXPECT_EQ(code_of(0), Code::kCancelled);
  node_.hold_connects_ = false;
  node_.run();
  EXPECT_EQ(server_->closed, 1);
}

TEST_F(ChannelTest, AChannelMayBeDestroyedInACallback) {
  channel_->call(kMethod, {}, {}, [this](Result<Payload>) { channel_.reset(); });
  call();
  node_.run();
  PlayedServer::answer(server_->requests[0]);
  node_.run();
  EXPECT_EQ(channel_, nullptr);
  EXPECT_EQ(code_of(0), Code::kCancelled);
}

TEST_F(ChannelTest, CallsOfOtherThreadsKeepTheirOrderAndCanBeCancelled) {
  node_.here_ = false;
  call(body(1));
  const CallId id = call(body(2));
  call(body(3));
  channel_->cancel(id);
  EXPECT_EQ(node_.connects_, 0u) << "nothing happens outside of the I/O thread";
  node_.run();
  EXPECT_EQ(code_of(1), Code::kCancelled);
  ASSERT_EQ(server_->requests.size(), 2u);
  EXPECT_EQ(server_->requests[1].payload.body.size(), 3u);
  node_.here_ = true;
}

TEST_F(ChannelTest, CallsOfOtherThreadsThatWereNotSeenYetEndWithTheChannel) {
  node_.here_ = false;
  call(body(1));
  node_.here_ = true;
  channel_.reset();
  EXPECT_EQ(code_of(0), Code::kCancelled);
  EXPECT_EQ(node_.pool().stats().live_bytes, 0u);
  node_.run();
}

TEST_F(ChannelTest, CallAndWaitDrivesTheNode) {
  server_->listener.reset();
  const auto refused = channel_->call_and_wait(kMethod, {}, {});
  EXPECT_EQ(refused.status().code(), Code::kUnavailable);
  server_.reset();
  server_.emplace(node_);
  const Time before = node_.now();
  const auto unanswered = channel_->call_and_wait(kMethod, {}, {.timeout = 40ms});
  EXPECT_EQ(unanswered.status().code(), Code::kDeadlineExceeded);
  EXPECT_LE(node_.now() - before, 45ms);
}

TEST_F(ChannelTest, ManyCallsWithinOneTimeoutNeedOneTimerOnly) {
  call();
  node_.run();
  PlayedServer::answer(server_->requests[0]);
  node_.run();
  const Time armed = node_.timers().next();
  for (int i = 0; i < 100; ++i) {
    call();
    node_.advance(1ms);
    PlayedServer::answer(server_->requests.back());
    node_.run();
    EXPECT_EQ(node_.timers().next(), armed);
  }
  channel_.reset();
  EXPECT_TRUE(node_.timers().empty());
}

}  // namespace
}  // namespace be::rpc
