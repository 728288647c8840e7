// Channels and servers over the real transports, with started I/O threads and with driven ones.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "be/rpc/channel.h"
#include "be/rpc/server.h"

namespace be::rpc {
namespace {

using testing::HasSubstr;

const MethodId kEcho = method_id("echo");
const MethodId kEchoOnWorker = method_id("echo on a worker");
const MethodId kHold = method_id("hold");

std::unique_ptr<Node> make_node(TransportChoice transport, bool driven = false) {
  NodeOptions options;
  options.transport = transport;
  options.driven = driven;
  options.memory.cap_bytes = 256 << 20;
  auto node = Node::create(kernel_world(), options);
  EXPECT_TRUE(node.ok()) << node.status().to_string();
  return std::move(node).value();
}

Payload make_payload(Node& node, size_t body, size_t attachment, uint8_t seed) {
  Payload payload;
  if (body > 0) payload.body = node.pool().allocate_buffer(body).value();
  if (attachment > 0) payload.attachment = node.pool().allocate_buffer(attachment).value();
  for (size_t i = 0; i < body; ++i) payload.body.data()[i] = static_cast<uint8_t>(seed + i);
  for (size_t i = 0; i < attachment; ++i) {
    payload.attachment.data()[i] = static_cast<uint8_t>(seed + 3 * i);
  }
  return payload;
}

bool is_payload(const Payload& payload, size_t body, size_t attachment, uint8_t seed) {
  if (payload.body.size() != body || payload.attachment.size() != attachment) return false;
  for (size_t i = 0; i < body; ++i) {
    if (payload.body.data()[i] != static_cast<uint8_t>(seed + i)) return false;
  }
  for (size_t i = 0; i < attachment; ++i) {
    if (payload.attachment.data()[i] != static_cast<uint8_t>(seed + 3 * i)) return false;
  }
  return true;
}

class TransportsTest : public testing::TestWithParam<TransportChoice> {
 protected:
  TransportsTest() : server_node_(make_node(GetParam())) { start_server(); }

  ~TransportsTest() override {
    {
      std::lock_guard lock(mutex_);
      held_.clear();
    }
    channel_.reset();
    server_.reset();
  }

  void start_server(const Address& address = Address::parse("127.0.0.1:0").value()) {
    server_ = Server::create(*server_node_, {.worker_threads = 2}).value();
    const Handler echo = [](ServerCall call) {
      Payload same{std::move(call.body()), std::move(call.attachment())};
      call.reply(std::move(same));
    };
    ASSERT_TRUE(server_->add_method("echo", RunOn::kIoThread, echo).ok());
    ASSERT_TRUE(server_->add_method("echo on a worker", RunOn::kWorkers, echo).ok());
    ASSERT_TRUE(server_
                    ->add_method("hold", RunOn::kIoThread,
                                 [this](ServerCall call) {
                                   std::lock_guard lock(mutex_);
                                   held_.push_back(std::move(call));
                                 })
                    .ok());
    const Status status = server_->listen(address);
    ASSERT_TRUE(status.ok()) << status.to_string();
  }

  void open(bool driven, const ChannelOptions& options = {}) {
    client_node_ = make_node(GetParam(), driven);
    channel_ = Channel::create(*client_node_, server_->address(), options);
  }

  std::unique_ptr<Node> server_node_;
  std::unique_ptr<Node> client_node_;
  std::unique_ptr<Server> server_;
  std::unique_ptr<Channel> channel_;
  std::mutex mutex_;
  std::vector<ServerCall> held_;
};

TEST_P(TransportsTest, PayloadsOfAllSizesComeBackUnchanged) {
  for (const bool driven : {false, true}) {
    channel_.reset();
    open(driven);
    for (const auto& [body, attachment] :
         std::vector<std::pair<size_t, size_t>>{{0, 0},
                                                {1, 0},
                                                {32, 0},
                                                {0, 100},
                                                {300, 5000},
                                                {4096, 0},
                                                {60000, 10},
                                                {100, 300000},
                                                {3 << 20, 2 << 20}}) {
      for (const MethodId method : {kEcho, kEchoOnWorker}) {
        const auto answer = channel_->call_and_wait(
            method, make_payload(*client_node_, body, attachment, 7), {.timeout = 10s});
        ASSERT_TRUE(answer.ok()) << answer.status().to_string();
        EXPECT_TRUE(is_payload(*answer, body, attachment, 7)) << body << "+" << attachment;
      }
    }
  }
}

TEST_P(TransportsTest, TheChannelTellsItsTransport) {
  open(false);
  EXPECT_EQ(channel_->transport(), std::nullopt);
  ASSERT_TRUE(channel_->call_and_wait(kEcho, {}, {}).ok());
  EXPECT_EQ(channel_->transport(),
            GetParam() == TransportChoice::kTcp ? TransportKind::kTcp : TransportKind::kSoftnic);
}

TEST_P(TransportsTest, ThreadsShareAChannel) {
  constexpr int kThreads = 4, kCalls = 300;
  open(false);
  std::atomic<int> good{0};
  std::vector<std::thread> callers;
  for (int t = 0; t < kThreads; ++t) {
    callers.emplace_back([&, t] {
      for (int i = 0; i < kCalls; ++i) {
        const size_t bytes = 1 + (t * 977 + i * 131) % 9000;
        const uint8_t seed = static_cast<uint8_t>(t * 50 + i);
        const auto answer = channel_->call_and_wait(i % 2 == 0 ? kEcho : kEchoOnWorker,
                                                    make_payload(*client_node_, bytes, i % 3, seed),
                                                    {.timeout = 20s});
        if (answer.ok() && is_payload(*answer, bytes, i % 3, seed)) ++good;
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(good, kThreads * kCalls);
}

TEST_P(TransportsTest, ManyCallsOutstandingEachEndOnce) {
  constexpr int kCalls = 5000;
  open(true);
  ASSERT_TRUE(channel_->call_and_wait(kEcho, {}, {}).ok());  // connected
  int ended = 0, good = 0;
  for (int i = 0; i < kCalls; ++i) {
    channel_->call(
        kEcho, make_payload(*client_node_, 1 + i % 600, 0, static_cast<uint8_t>(i)),
        {.timeout = 50s}, [&, i](Result<Payload> answer) {
          ++ended;
          if (answer.ok() && is_payload(*answer, 1 + i % 600, 0, static_cast<uint8_t>(i))) {
            ++good;
          }
        });
  }
  client_node_->thread(0).run_until([&] { return ended == kCalls; },
                                    client_node_->world().now() + 50s);
  EXPECT_EQ(ended, kCalls);
  EXPECT_EQ(good, kCalls);
}

TEST_P(TransportsTest, ADeadlineEndsACallThatNobodyAnswers) {
  for (const bool driven : {false, true}) {
    channel_.reset();
    open(driven);
    ASSERT_TRUE(channel_->call_and_wait(kEcho, {}, {}).ok());
    const Time begin = client_node_->world().now();
    const auto answer = channel_->call_and_wait(kHold, {}, {.timeout = 40ms});
    const Nanoseconds took = client_node_->world().now() - begin;
    EXPECT_EQ(answer.status().code(), Code::kDeadlineExceeded);
    EXPECT_GE(took, 40ms);
    EXPECT_LE(took, 90ms);
  }
}

TEST_P(TransportsTest, NobodyListeningIsUnavailableByName) {
  const Address gone = server_->address();
  server_.reset();
  client_node_ = make_node(GetParam());
  channel_ = Channel::create(*client_node_, gone, {});
  const auto answer = channel_->call_and_wait(kEcho, {}, {});
  EXPECT_EQ(answer.status().code(), Code::kUnavailable);
  EXPECT_THAT(answer.status().message(), HasSubstr("connect to " + gone.to_string()));
  EXPECT_THAT(answer.status().message(), HasSubstr("ECONNREFUSED"));
}

TEST_P(TransportsTest, AfterTheServerReturnsTheNextCallSucceeds) {
  open(false);
  ASSERT_TRUE(channel_->call_and_wait(kEcho, {}, {}).ok());
  const Address address = server_->address();
  server_.reset();
  const auto lost = channel_->call_and_wait(kEcho, {}, {});
  EXPECT_EQ(lost.status().code(), Code::kUnavailable) << lost.status().to_string();
  start_server(address);
  // The old connection's end may still be on its way: bounded retries.
  Status last;
  const Time give_up = client_node_->world().now() + 5s;
  do {
    last = channel_->call_and_wait(kEcho, {}, {}).status();
  } while (last.code() == Code::kUnavailable && client_node_->world().now() < give_up);
  EXPECT_TRUE(last.ok()) << last.to_string();
}

TEST_P(TransportsTest, AServerDestroyedWithCallsInsideEndsThemAll) {
  open(false);
  ASSERT_TRUE(channel_->call_and_wait(kEcho, {}, {}).ok());
  std::atomic<int> ended{0};
  for (int i = 0; i < 50; ++i) {
    channel_->call(i % 2 == 0 ? kHold : kEchoOnWorker, make_payload(*client_node_, 100, 0, 1),
                   {.timeout = 5s}, [&](Result<Payload>) { ++ended; });
  }
  server_.reset();
  const Time give_up = client_node_->world().now() + 10s;
  while (ended < 50 && client_node_->world().now() < give_up) std::this_thread::yield();
  EXPECT_EQ(ended, 50);
}

TEST_P(TransportsTest, AChannelDestroyedWithCallsOutstandingEndsThemFirst) {
  open(false);
  std::atomic<int> ended{0}, cancelled{0};
  for (int i = 0; i < 100; ++i) {
    channel_->call(kHold, make_payload(*client_node_, 10, 0, 1), {}, [&](Result<Payload> answer) {
      ++ended;
      if (answer.status().code() == Code::kCancelled) ++cancelled;
    });
  }
  channel_.reset();
  EXPECT_EQ(ended, 100);
  EXPECT_EQ(cancelled, 100);
}

TEST_P(TransportsTest, CancellationReachesAHeldCall) {
  open(false);
  ASSERT_TRUE(channel_->call_and_wait(kEcho, {}, {}).ok());
  std::atomic<bool> ended{false};
  const CallId id =
      channel_->call(kHold, {}, {.timeout = 20s}, [&](Result<Payload>) { ended = true; });
  const auto wait_for = [&](auto condition) {
    const Time give_up = client_node_->world().now() + 10s;
    for (;;) {
      {
        std::lock_guard lock(mutex_);
        if (condition()) return true;
      }
      if (client_node_->world().now() > give_up) return false;
      std::this_thread::yield();
    }
  };
  ASSERT_TRUE(wait_for([&] { return held_.size() == 1; }));
  channel_->cancel(id);
  EXPECT_TRUE(wait_for([&] { return held_[0].cancelled(); }));
  EXPECT_TRUE(wait_for([&] { return ended.load(); }));
}

INSTANTIATE_TEST_SUITE_P(Over, TransportsTest,
                         testing::Values(TransportChoice::kTcp, TransportChoice::kSoftnic),
                         [](const auto& tested) {
                           return tested.param == TransportChoice::kTcp ? "Tcp" : "Softnic";
                         });

}  // namespace
}  // namespace be::rpc
