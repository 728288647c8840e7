// A Server against a client played by the test, in virtual time.
#include "be/rpc/server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "be/rpc/frame.h"
#include "fake_node.h"

namespace be::rpc {
namespace {

using testing::HasSubstr;

const Address kAddress = fake_address(9000);

// The client's end of one connection.
struct PlayedClient final : SocketHandler {
  struct Received {
    FrameHeader header;
    Payload payload;
    Status status() const {
      return header.code == 0 ? Status() : error_of_response(header, payload.body);
    }
  };

  explicit PlayedClient(FakeNode& at) : node(at) {
    node.connect(kAddress, {}, this);
    node.run();
  }

  void on_open(Socket& opened) override { socket = &opened; }
  void on_sent(Socket&, uint64_t, const Status&) override {}
  void on_closed(Socket&, const Status& status) override {
    socket = nullptr;
    closed = status;
  }
  void on_message(Socket&, Buffer message) override {
    FrameHeader header;
    ASSERT_TRUE(parse_frame(message, header).ok());
    EXPECT_EQ(header.type, FrameType::kResponse);
    responses.push_back({header, split_frame(header, std::move(message))});
  }

  void send(FrameHeader header, Payload payload = {}) {
    Message frame;
    make_frame(frame, header, payload);
    ASSERT_TRUE(socket->send(frame, 0).ok());
  }
  void request(std::string_view method, uint64_t id, Payload payload = {},
               uint32_t timeout_us = 1000000) {
    FrameHeader header;
    header.type = FrameType::kRequest;
    header.method = method_id(method);
    header.call_id = id;
    header.timeout_us = timeout_us;
    send(header, std::move(payload));
  }
  void cancel(uint64_t id) {
    FrameHeader header;
    header.type = FrameType::kCancel;
    header.call_id = id;
    send(header);
  }

  FakeNode& node;
  Socket* socket = nullptr;
  std::optional<Status> closed;
  std::vector<Received> responses;
};

class ServerTest : public testing::Test {
 protected:
  ServerTest() { make({}); }
  ~ServerTest() override {
    held_.clear();
    server_.reset();
    node_.run();
    client_.reset();
    EXPECT_EQ(node_.pool().stats().live_bytes, 0u);
  }

  void make(const ServerOptions& options) {
    server_ = Server::create(node_, options).value();
    add("inline", RunOn::kIoThread, [this](ServerCall call) {
      ++runs_;
      Payload same{std::move(call.body()), std::move(call.attachment())};
      call.reply(std::move(same));
    });
    add("worker", RunOn::kWorkers, [this](ServerCall call) {
      ++runs_;
      call.reply({std::move(call.body()), {}});
    });
    add("hold", RunOn::kIoThread, [this](ServerCall call) { held_.push_back(std::move(call)); });
    add("forget", RunOn::kIoThread, [](ServerCall) {});
  }
  void add(std::string_view name, RunOn run_on, Handler handler) {
    ASSERT_TRUE(server_->add_method(name, run_on, std::move(handler)).ok());
  }
  PlayedClient& start() {
    EXPECT_TRUE(server_->listen(kAddress).ok());
    client_.emplace(node_);
    return *client_;
  }
  Payload text(std::string_view content) {
    Payload payload;
    payload.body = node_.pool().allocate_buffer(content.size()).value();
    std::memcpy(payload.body.data(), content.data(), content.size());
    return payload;
  }
  void run() {
    node_.run();
    node_.here_ = false;  // workers are other threads
    node_.workers().run();
    node_.here_ = true;
    node_.run();
  }

  FakeNode node_;
  std::unique_ptr<Server> server_;
  std::optional<PlayedClient> client_;
  std::vector<ServerCall> held_;
  int runs_ = 0;
};

TEST_F(ServerTest, InlineAndWorkerHandlersAnswer) {
  PlayedClient& client = start();
  client.request("inline", 7, text("abc"));
  node_.run();
  ASSERT_EQ(client.responses.size(), 1u) << "inline: no worker is needed";
  EXPECT_EQ(client.responses[0].header.call_id, 7u);
  EXPECT_EQ(client.responses[0].payload.body.size(), 3u);
  client.request("worker", 8, text("abcd"));
  node_.run();
  EXPECT_EQ(client.responses.size(), 1u);
  run();
  ASSERT_EQ(client.responses.size(), 2u);
  EXPECT_EQ(client.responses[1].header.call_id, 8u);
}

TEST_F(ServerTest, AnUnknownMethodIsNotFoundAndNamed) {
  PlayedClient& client = start();
  client.request("nonsense", 1);
  node_.run();
  const Status status = client.responses.at(0).status();
  EXPECT_EQ(status.code(), Code::kNotFound);
  EXPECT_THAT(status.message(), HasSubstr(fmt::format("{:#010x}", method_id("nonsense"))));
}

TEST_F(ServerTest, ACallWhoseDeadlineHasPassedIsNotRun) {
  PlayedClient& client = start();
  client.request("inline", 1, {}, /*timeout_us=*/0);
  client.request("worker", 2, {}, /*timeout_us=*/1000);
  node_.run();
  node_.advance(1ms);
  run();
  ASSERT_EQ(client.responses.size(), 2u);
  for (const auto& response : client.responses) {
    EXPECT_EQ(response.status().code(), Code::kDeadlineExceeded);
  }
  EXPECT_EQ(runs_, 0);
}

TEST_F(ServerTest, TheHandlerSeesTheDeadlineOfTheCaller) {
  PlayedClient& client = start();
  client.request("hold", 1, {}, 40000);
  node_.run();
  EXPECT_EQ(held_.at(0).deadline(), node_.now() + 40ms);
}

TEST_F(ServerTest, AForgottenCallIsAnsweredWithInternal) {
  PlayedClient& client = start();
  client.request("forget", 1);
  node_.run();
  EXPECT_EQ(client.responses.at(0).status().code(), Code::kInternal);
}

TEST_F(ServerTest, FailingACallSendsItsStatus) {
  PlayedClient& client = start();
  client.request("hold", 1);
  node_.run();
  held_[0].fail(error(Code::kDataLoss, "row {} is damaged", 5));
  node_.run();
  EXPECT_EQ(client.responses.at(0).status().to_string(),
            error(Code::kDataLoss, "row 5 is damaged").to_string());
}

TEST_F(ServerTest, MoreCallsThanMaxInProgressAreRefusedAtOnce) {
  make({.max_in_progress = 2});
  PlayedClient& client = start();
  for (uint64_t id = 1; id <= 3; ++id) client.request("hold", id);
  node_.run();
  EXPECT_EQ(held_.size(), 2u);
  ASSERT_EQ(client.responses.size(), 1u);
  EXPECT_EQ(client.responses[0].header.call_id, 3u);
  EXPECT_EQ(client.responses[0].status().code(), Code::kResourceExhausted);
  held_.pop_back();
  client.request("inline", 4);
  node_.run();
  EXPECT_EQ(client.responses.back().header.call_id, 4u);
  EXPECT_TRUE(client.responses.back().status().ok());
}

TEST_F(ServerTest, ACancelReachesItsCallOnly) {
  PlayedClient& client = start();
  client.request("hold", 1);
  client.request("hold", 2);
  client.cancel(1);
  client.cancel(99);
  node_.run();
  EXPECT_TRUE(held_.at(0).cancelled());
  EXPECT_FALSE(held_.at(1).cancelled());
}

TEST_F(ServerTest, ACancelledCallIsNotStarted) {
  PlayedClient& client = start();
  client.request("worker", 1);
  client.cancel(1);
  run();
  EXPECT_EQ(runs_, 0);
  EXPECT_EQ(client.responses.at(0).status().code(), Code::kCancelled);
}

TEST_F(ServerTest, ACancelHookRunsOnceOnCancellationOrAfterTheAnswer) {
  PlayedClient& client = start();
  std::vector<int> ran(3);
  for (uint64_t id = 0; id < 3; ++id) client.request("hold", id);
  node_.run();
  for (size_t i = 0; i < 2; ++i) held_[i].on_cancel([&ran, i] { ++ran[i]; });
  EXPECT_EQ(ran, (std::vector{0, 0, 0}));
  client.cancel(0);
  client.cancel(2);
  node_.run();
  EXPECT_EQ(ran, (std::vector{1, 0, 0}));
  held_[2].on_cancel([&ran] { ++ran[2]; });
  EXPECT_EQ(ran, (std::vector{1, 0, 1})) << "cancelled before: at once";
  for (ServerCall& call : held_) call.reply({});
  node_.run();
  EXPECT_EQ(ran, (std::vector{1, 1, 1}));
}

TEST_F(ServerTest, APeerThatIsGoneCancelsItsCalls) {
  PlayedClient& client = start();
  client.request("hold", 1);
  node_.run();
  client.socket->close();
  node_.run();
  EXPECT_TRUE(held_.at(0).cancelled());
  held_[0].reply(text("nobody reads this"));
  node_.run();
  EXPECT_TRUE(client.responses.empty());
}

TEST_F(ServerTest, CallsHeldBeyondTheServerGoNowhere) {
  PlayedClient& client = start();
  client.request("hold", 1);
  client.request("hold", 2);
  node_.run();
  server_.reset();
  node_.run();
  EXPECT_TRUE(client.closed);
  EXPECT_TRUE(held_.at(0).cancelled());
  held_[0].reply(text("too late"));
  node_.here_ = false;
  held_[1].fail(error(Code::kInternal, "too late"));
  node_.here_ = true;
  node_.run();
}

TEST_F(ServerTest, DestructionWaitsForWorkersButStartsNoHandler) {
  PlayedClient& client = start();
  client.request("worker", 1);
  node_.run();
  EXPECT_EQ(node_.workers().waiting(), 1u);
  server_.reset();
  EXPECT_EQ(node_.workers().waiting(), 0u);
  EXPECT_EQ(runs_, 0);
}

TEST_F(ServerTest, AMalformedFrameEndsItsConnectionOnly) {
  PlayedClient& client = start();
  PlayedClient other(node_);
  Message nonsense(text("GET / HTTP/1.1").body);
  ASSERT_TRUE(client.socket->send(nonsense, 0).ok());
  node_.run();
  EXPECT_TRUE(client.closed);
  other.request("inline", 1);
  node_.run();
  EXPECT_EQ(other.responses.size(), 1u);
  other.socket->close();
  node_.run();
}

TEST_F(ServerTest, AClientThatSendsResponsesIsCutOff) {
  PlayedClient& client = start();
  FrameHeader header;
  header.type = FrameType::kResponse;
  client.send(header);
  node_.run();
  EXPECT_TRUE(client.closed);
}

TEST_F(ServerTest, ResponsesWaitInOrderWhileTheSocketIsFull) {
  PlayedClient& client = start();
  client.request("hold", 1);
  client.request("hold", 2);
  client.request("hold", 3);
  node_.run();
  node_.queue_limit_ = 1;
  for (size_t i = 0; i < 3; ++i) held_[i].reply(text(std::string(i + 1, 'r')));
  node_.run();
  ASSERT_EQ(client.responses.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(client.responses[i].header.call_id, i + 1);
    EXPECT_EQ(client.responses[i].payload.body.size(), i + 1);
  }
}

TEST_F(ServerTest, APeerThatNeverReadsIsCutOffBeforeItsAnswersPileUp) {
  make({.max_in_progress = 4});
  PlayedClient& client = start();
  node_.queue_limit_ = 0;
  FakeSocket& end = *node_.sockets_[0];  // its requests still pass
  for (uint64_t id = 0; id < 20 && !end.ended_; ++id) {
    node_.queue_limit_ = SIZE_MAX;
    client.request("inline", id);
    node_.queue_limit_ = 0;
    node_.run();
  }
  EXPECT_TRUE(client.closed);
  EXPECT_LE(runs_, 4);
}

TEST_F(ServerTest, AResponseTheTransportNeverTakesBecomesAnError) {
  PlayedClient& client = start();
  client.request("hold", 1);
  node_.run();
  held_[0].reply({node_.pool().allocate_buffer(2 << 20).value(), {}});  // limit: 1 MiB
  node_.run();
  EXPECT_EQ(client.responses.at(0).status().code(), Code::kResourceExhausted);
}

TEST_F(ServerTest, NamesWithTheSameHashAreRefused) {
  EXPECT_EQ(server_->add_method("inline", RunOn::kIoThread, {}).code(), Code::kAlreadyExists);
}

TEST_F(ServerTest, MethodsAreFixedWhenItListens) {
  start();
  EXPECT_EQ(server_->add_method("late", RunOn::kIoThread, {}).code(), Code::kInvalidArgument);
  EXPECT_EQ(server_->listen(kAddress).code(), Code::kInvalidArgument);
}

TEST_F(ServerTest, ImpossibleOptionsAreNamed) {
  EXPECT_THAT(Server::create(node_, {.worker_threads = 0}).status().message(),
              HasSubstr("worker_threads"));
  EXPECT_THAT(Server::create(node_, {.max_in_progress = 0}).status().message(),
              HasSubstr("max_in_progress"));
}

}  // namespace
}  // namespace be::rpc
