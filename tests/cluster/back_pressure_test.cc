// Back-pressure between processes: memory caps, slow applications, queues and windows of the
// smallest size. Nothing waits for ever, nothing is lost, others flow, and all goes on afterwards.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "be/rpc/channel.h"
#include "be/rpc/server.h"
#include "tests/unit/base/forked_child.h"

namespace be::rpc {
namespace {

using testing::HasSubstr;

constexpr CallOptions kPatient{.timeout = 40s};
constexpr size_t kLarge = 200'000;

// A few blocks of 64 KiB, of which the receives of an engine take little.
NodeOptions small_node(TransportChoice transport) {
  NodeOptions options;
  options.transport = transport;
  options.memory = {.block_bytes = 64 << 10, .cap_bytes = 2 << 20};
  options.engine.recv_queue_depth = 8;
  options.engine.grants = 4;
  options.engine.write_requests = 4;
  options.engine.grant_cancels = 1;
  options.engine.eager_bytes = 1024;
  options.engine.keepalive_timeout = 60s;  // and so the patience with a full memory
  return options;
}

std::unique_ptr<Node> make_node(const NodeOptions& options) {
  return Node::create(kernel_world(), options).value();
}

std::unique_ptr<Channel> make_channel(Node& node, const Address& server) {
  ChannelOptions options;
  options.connect_timeout = 20s;
  return Channel::create(node, server, options);
}

uint8_t byte_at(size_t place, uint32_t seed) {
  return static_cast<uint8_t>((place * 2654435761u >> 13) + seed);
}

// Empty: the pool has no place.
Buffer filled(Node& node, size_t size, uint32_t seed) {
  Result<Buffer> made = node.pool().allocate_buffer(size);
  if (!made.ok()) return {};
  for (size_t i = 0; i < size; ++i) made->data()[i] = byte_at(i, seed);
  return *std::move(made);
}

bool is_filled(const Buffer& buffer, size_t size, uint32_t seed) {
  if (buffer.size() != size) return false;
  for (size_t i = 0; i < size; ++i) {
    if (buffer.data()[i] != byte_at(i, seed)) return false;
  }
  return true;
}

Payload body_of(Buffer buffer) {
  Payload payload;
  payload.body = std::move(buffer);
  return payload;
}

Status call(Channel& channel, const char* method, const CallOptions& options = kPatient) {
  return channel.call_and_wait(method_id(method), {}, options).status();
}

Status echo(Channel& channel, size_t size, uint32_t seed) {
  Payload request;
  if (size > 0) request.body = filled(channel.node(), size, seed);
  BE_ASSIGN_OR_RETURN(const Payload answer,
                      channel.call_and_wait(method_id("echo"), std::move(request), kPatient));
  if (is_filled(answer.body, size, seed)) return {};
  return error(Code::kInternal, "an echo of {} bytes differs", size);
}

// Everything that is left of the pool.
std::vector<Buffer> hoard_of(Node& node) {
  std::vector<Buffer> hoard;
  for (const size_t size : {size_t{64} << 10, size_t{4096}, size_t{256}, size_t{64}, size_t{16}}) {
    for (auto more = node.pool().allocate_buffer(size); more.ok();
         more = node.pool().allocate_buffer(size)) {
      hoard.push_back(*std::move(more));
    }
  }
  return hoard;
}

// What the serving process does.
class Service {
 public:
  explicit Service(const NodeOptions& options) : node_(make_node(options)) {
    server_ = Server::create(*node_, {}).value();
    add("echo", [](ServerCall call) { call.reply(body_of(std::move(call.body()))); });
    add("keep", [this](ServerCall call) {  // a slow application: answers when it is released
      const std::lock_guard lock(mutex_);
      kept_.push_back(std::move(call));
    });
    add("release", [this](ServerCall call) {
      std::vector<ServerCall> kept;
      {
        const std::lock_guard lock(mutex_);
        kept = std::move(kept_);
        kept_.clear();
        released_ = true;
      }
      call.reply({});
      for (ServerCall& one : kept) one.reply(body_of(std::move(one.body())));
    });
    add("kept or echo", [this](ServerCall call) {
      const std::lock_guard lock(mutex_);
      if (released_) return call.reply(body_of(std::move(call.body())));
      kept_.push_back(std::move(call));
    });
    add("hoard", [this](ServerCall call) {
      call.reply({});
      hoard_ = hoard_of(*node_);
    });
    add("give back", [this](ServerCall call) {
      hoard_.clear();
      call.reply({});
    });
    ready_made_ = filled(*node_, kLarge, 77);
    add("large reply",
        [this](ServerCall call) { call.reply(body_of(ready_made_.share(0, ready_made_.size()))); });
    add("fill and call", [this](ServerCall call) { fill_and_call(std::move(call)); });
    add("alive", [this](ServerCall call) {  // allocations, in the number of bytes of the answer
      const uint64_t alive = node_->pool().stats().allocations;
      Result<Buffer> answer = node_->pool().allocate_buffer(sizeof(alive));
      if (!answer.ok()) return call.fail(answer.status());
      std::memcpy(answer->data(), &alive, sizeof(alive));
      call.reply(body_of(*std::move(answer)));
    });
    EXPECT_TRUE(server_->listen(Address::parse("127.0.0.1:0").value()).ok());
  }
  const Address& address() const { return server_->address(); }

 private:
  void add(const char* name, Handler handler) {
    EXPECT_TRUE(server_->add_method(name, RunOn::kIoThread, std::move(handler)).ok());
  }

  // Fills our memory with large messages for the server named in the request, and sends them all.
  // Answers once each has ended.
  void fill_and_call(ServerCall call) {
    const std::string whom(reinterpret_cast<const char*>(call.body().data()), call.body().size());
    back_ = make_channel(*node_, Address::parse(whom).value());
    call.reply({});
    uint32_t seed = 0;
    for (Buffer body = filled(*node_, kLarge, 0); body; body = filled(*node_, kLarge, ++seed)) {
      back_->call(method_id("echo"), body_of(std::move(body)), kPatient,
                  [](Result<Payload> answer) { answer.status().ignore(); });
    }
  }

  std::unique_ptr<Node> node_;
  Buffer ready_made_;
  std::mutex mutex_;
  std::vector<ServerCall> kept_;
  bool released_ = false;
  std::vector<Buffer> hoard_;
  std::unique_ptr<Channel> back_;
  std::unique_ptr<Server> server_;
};

// The serving process: forked before this one has any device.
class ServingProcess {
 public:
  explicit ServingProcess(const NodeOptions& options) {
    int sides[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, sides), 0);
    side_ = sides[0];
    pid_ = fork();
    if (pid_ == 0) {
      in_forked_child = true;
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      ::close(sides[0]);
      {
        Service service(options);
        char text[64] = {};
        std::strncpy(text, service.address().to_string().c_str(), sizeof(text) - 1);
        EXPECT_EQ(::send(sides[1], text, sizeof(text), 0), ssize_t{sizeof(text)});
        while (::recv(sides[1], text, 1, 0) > 0) {
        }
      }
      _exit(testing::Test::HasFailure() ? 1 : 0);
    }
    ::close(sides[1]);
    char text[64] = {};
    EXPECT_EQ(::recv(side_, text, sizeof(text), MSG_WAITALL), ssize_t{sizeof(text)});
    address_ = Address::parse(text).value();
  }
  ~ServingProcess() {
    ::close(side_);
    expect_good_end(pid_);
  }
  const Address& address() const { return address_; }

 private:
  int side_ = -1;
  pid_t pid_ = 0;
  Address address_;
};

uint64_t allocations_at(Channel& channel) {
  const auto answer = channel.call_and_wait(method_id("alive"), {}, kPatient);
  uint64_t alive = 0;
  if (answer.ok()) std::memcpy(&alive, answer->body.data(), sizeof(alive));
  return alive;
}

class BackPressure : public testing::TestWithParam<TransportChoice> {
 protected:
  NodeOptions options_ = small_node(GetParam());
};

// One client has filled the server's memory, which its application keeps.
TEST_P(BackPressure, AtTheCapOfASlowApplicationOthersFlowAndAllGoesOnWhenItLetsGo) {
  ServingProcess serving(options_);
  NodeOptions roomy = options_;
  roomy.memory.cap_bytes = 16 << 20;
  const auto greedy_node = make_node(roomy);
  const auto other_node = make_node(options_);
  auto greedy = make_channel(*greedy_node, serving.address());
  auto other = make_channel(*other_node, serving.address());
  ASSERT_TRUE(echo(*greedy, 100, 1).ok());
  ASSERT_TRUE(echo(*other, 100, 1).ok());
  const uint64_t before = allocations_at(*other);

  constexpr uint32_t kCalls = 40;
  std::atomic<uint32_t> ended{0};
  std::atomic<uint32_t> good{0};
  for (uint32_t i = 0; i < kCalls; ++i) {
    greedy->call(method_id("kept or echo"), body_of(filled(*greedy_node, kLarge, i)), kPatient,
                 [&, i](Result<Payload> answer) {
                   if (answer.ok() && is_filled(answer->body, kLarge, i)) ++good;
                   ++ended;
                 });
  }
  for (uint32_t i = 0; i < 300; ++i) ASSERT_TRUE(echo(*other, 1 + i % 900, i).ok()) << i;
  EXPECT_EQ(ended, 0u) << "the server keeps what fits, the others wait";
  // A reply finds its way though requests wait for memory on the same engine.
  const auto large = greedy->call_and_wait(method_id("large reply"), {}, kPatient);
  ASSERT_TRUE(large.ok()) << large.status().to_string();
  EXPECT_TRUE(is_filled(large->body, kLarge, 77));

  ASSERT_TRUE(call(*other, "release").ok());
  for (int i = 0; i < 8000 && ended < kCalls; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_EQ(ended, kCalls);
  EXPECT_EQ(good, kCalls) << "no call was lost, no byte changed";
  uint64_t after = 0;
  for (int i = 0; i < 1000 && (after = allocations_at(*other)) > before; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_LE(after, before) << "the server's memory is back";
}

TEST_P(BackPressure, ACallWhoseAnswerHasNoPlaceHereNamesTheCap) {
  ServingProcess serving(options_);
  const auto node = make_node(options_);
  const auto channel = make_channel(*node, serving.address());
  ASSERT_TRUE(echo(*channel, 100, 1).ok());
  std::vector<Buffer> hoard = hoard_of(*node);
  const Status status = call(*channel, "large reply", {.timeout = 500ms});
  EXPECT_EQ(status.code(), Code::kDeadlineExceeded);
  EXPECT_THAT(status.message(), HasSubstr("memory.cap_bytes"));
  hoard.clear();
  const auto large = channel->call_and_wait(method_id("large reply"), {}, kPatient);
  ASSERT_TRUE(large.ok()) << large.status().to_string();
  EXPECT_TRUE(is_filled(large->body, kLarge, 77));
}

// Each has filled its memory with messages for the other: somebody must give way, by name.
TEST_P(BackPressure, TwoProcessesFullOfLargeMessagesForEachOtherGoOn) {
  options_.engine.keepalive_interval = 250ms;
  options_.engine.keepalive_timeout = 2s;
  ServingProcess serving(options_);
  const auto node = make_node(options_);
  const auto server = Server::create(*node, {}).value();
  ASSERT_TRUE(server
                  ->add_method("echo", RunOn::kIoThread,
                               [](ServerCall call) { call.reply(body_of(std::move(call.body()))); })
                  .ok());
  ASSERT_TRUE(server->listen(Address::parse("127.0.0.1:0").value()).ok());
  const auto channel = make_channel(*node, serving.address());
  ASSERT_TRUE(echo(*channel, 100, 1).ok());
  std::vector<Buffer> bodies;
  for (uint32_t i = 0; Buffer body = filled(*node, kLarge, i); ++i) {
    bodies.push_back(std::move(body));
  }
  {
    const std::string here = server->address().to_string();
    Buffer text = node->pool().allocate_buffer(here.size()).value();
    std::memcpy(text.data(), here.data(), here.size());
    ASSERT_TRUE(
        channel->call_and_wait(method_id("fill and call"), body_of(std::move(text)), kPatient)
            .ok());
  }
  const auto count = static_cast<uint32_t>(bodies.size());
  ASSERT_GT(count, 4u);
  std::atomic<uint32_t> ended{0};
  std::atomic<uint32_t> wrong{0};
  for (uint32_t i = 0; i < count; ++i) {
    channel->call(
        method_id("echo"), body_of(std::move(bodies[i])), kPatient, [&, i](Result<Payload> answer) {
          if (answer.ok() && !is_filled(answer->body, kLarge, i)) ++wrong;
          const Code code = answer.status().code();
          if (!answer.ok() && code != Code::kResourceExhausted && code != Code::kUnavailable) {
            ++wrong;
          }
          ++ended;
        });
  }
  for (int i = 0; i < 6000 && ended < count; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_EQ(ended, count) << "before any deadline";
  EXPECT_EQ(wrong, 0u);
  Status status;
  for (int i = 0; i < 200 && !(status = echo(*channel, kLarge, 5)).ok(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  EXPECT_TRUE(status.ok()) << status.to_string();
}

INSTANTIATE_TEST_SUITE_P(Over, BackPressure,
                         testing::Values(TransportChoice::kSoftnic, TransportChoice::kTcp),
                         [](const auto& test) {
                           return test.param == TransportChoice::kTcp ? "Tcp" : "Softnic";
                         });

// (Over TCP not even the request could be read: no byte of memory is left to read it into.)
TEST(BackPressureOfGrants, AnErrorFromAServerWithoutMemoryNamesTheCap) {
  const NodeOptions options = small_node(TransportChoice::kSoftnic);
  ServingProcess serving(options);
  const auto node = make_node(options);
  const auto channel = make_channel(*node, serving.address());
  ASSERT_TRUE(call(*channel, "hoard").ok());
  const Status status = call(*channel, "no such method");
  EXPECT_EQ(status.code(), Code::kNotFound);
  EXPECT_THAT(status.message(), HasSubstr("memory.cap_bytes"));
  ASSERT_TRUE(call(*channel, "give back").ok());
  EXPECT_THAT(call(*channel, "no such method").message(), HasSubstr("no method"));
}

TEST(BackPressureOfGrants, ARequestThatTheServerHasNoMemoryForIsRefusedByName) {
  NodeOptions options = small_node(TransportChoice::kSoftnic);
  options.engine.keepalive_interval = 100ms;
  options.engine.keepalive_timeout = 1s;
  ServingProcess serving(options);
  const auto node = make_node(options);
  const auto channel = make_channel(*node, serving.address());
  ASSERT_TRUE(call(*channel, "hoard").ok());
  const Status status =
      channel->call_and_wait(method_id("echo"), body_of(filled(*node, kLarge, 1)), kPatient)
          .status();
  EXPECT_EQ(status.code(), Code::kResourceExhausted) << status.to_string();
  EXPECT_THAT(status.message(), HasSubstr("memory.cap_bytes"));
  ASSERT_TRUE(call(*channel, "give back").ok());
  EXPECT_TRUE(echo(*channel, kLarge, 1).ok());
}

// The smallest values that EngineOptions::check accepts, alone and together.
std::map<std::string, EngineOptions> extremes() {
  const EngineOptions usual = small_node(TransportChoice::kSoftnic).engine;
  std::map<std::string, EngineOptions> all;
  auto one = [&](const std::string& name) -> EngineOptions& {
    return all.emplace(name, usual).first->second;
  };
  one("SendQueueOfTwo").send_queue_depth = 2;
  one("TwoCredits").recv_queue_depth = 2;
  one("TwoGrants").grants = 2;
  one("TwoWriteRequests").write_requests = 2;
  one("BudgetOfAByte").grant_budget_bytes = 1;
  one("SmallestEager").eager_bytes = 128;
  EngineOptions& window = one("WindowOfOneFragment");
  window.fragment_bytes = 256;
  window.send_window_bytes = 256;
  EngineOptions& chosen = one("FragmentByTheWindow");
  chosen.send_window_bytes = 300;
  EngineOptions& smallest = one("AllAtOnce");
  smallest.send_queue_depth = smallest.recv_queue_depth = 2;
  smallest.grants = smallest.write_requests = 2;
  smallest.grant_budget_bytes = 1;
  smallest.eager_bytes = 128;
  smallest.fragment_bytes = smallest.send_window_bytes = 256;
  return all;
}

TEST(BackPressureOfQueues, TheSmallestValuesMoveEveryByteOfEverySize) {
  for (const auto& [name, engine] : extremes()) {
    SCOPED_TRACE(name);
    NodeOptions options = small_node(TransportChoice::kSoftnic);
    options.engine = engine;
    ASSERT_TRUE(engine.check().ok());
    ServingProcess serving(options);
    const auto node = make_node(options);
    const auto channel = make_channel(*node, serving.address());
    std::vector<std::thread> callers;
    std::atomic<uint32_t> good{0};
    constexpr size_t kSizes[] = {0, 1, 100, 230, 1000, 5000, 60000};
    for (uint32_t caller = 0; caller < 3; ++caller) {
      callers.emplace_back([&, caller] {
        for (uint32_t i = 0; i < 70; ++i) {
          const Status status = echo(*channel, kSizes[(i + caller) % 7], 100 * caller + i);
          if (!status.ok()) return static_cast<void>(ADD_FAILURE() << status.to_string());
          ++good;
        }
      });
    }
    for (std::thread& caller : callers) caller.join();
    EXPECT_EQ(good, 210u);
    EXPECT_TRUE(echo(*channel, 500'000, 1).ok()) << "larger than the budget";
    EXPECT_EQ(channel->transport(), TransportKind::kSoftnic);
  }
}

}  // namespace
}  // namespace be::rpc
