// `byteexpress perf`: server and client as processes, over softnic and TCP, and what becomes of
// peers that are not what they should be.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <csignal>
#include <nlohmann/json.hpp>

#include "apps/perf_protocol.h"
#include "tests/cluster/common/forked_child.h"
#include "tests/cluster/common/hostile.h"
#include "tests/cluster/common/program.h"

namespace be::cluster {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::MatchesRegex;

std::string line_of(apps::ChildProcess& process) {
  for (;;) {
    if (const auto line = process.next_line()) return *line;
    if (process.stdout_fd() < 0) return {};
    pollfd wait = {process.stdout_fd(), POLLIN, 0};
    ::poll(&wait, 1, -1);
    process.read_output();
  }
}

struct PerfServer {
  explicit PerfServer(const std::vector<std::string>& more = {}) {
    std::vector<std::string> arguments = {"perf", "server"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    process = start_program("perf server", arguments);
    const std::string line = line_of(*process);
    EXPECT_THAT(line, testing::StartsWith("ready ")) << process->errors();
    address = line.substr(std::min<size_t>(line.size(), 6));
  }
  // As a user ends it.
  void end() {
    process->signal(SIGINT);
    const Status status = process->wait();
    EXPECT_TRUE(status.ok()) << status.to_string();
    EXPECT_EQ(process->errors(), "");
  }

  std::unique_ptr<apps::ChildProcess> process;
  std::string address;
};

std::vector<std::string> client_arguments(const std::string& address,
                                          const std::vector<std::string>& more) {
  std::vector<std::string> arguments = {"perf",     "client", address,         "--duration", "20ms",
                                        "--warmup", "5ms",    "--repetitions", "2"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

class Perf : public testing::Test {
 protected:
  nlohmann::json measure(const std::string& address, std::vector<std::string> more) {
    const std::string file = directory_.file("perf.json");
    more.insert(more.end(), {"--json", file});
    const Outcome outcome = run_program(client_arguments(address, more));
    EXPECT_EQ(outcome.exit_code, 0) << outcome.errors;
    EXPECT_EQ(outcome.errors, "");
    table_ = outcome.output;
    return nlohmann::json::parse(read_file(file), nullptr, false);
  }
  // Exit code 1 and one line.
  static std::string failure(const std::vector<std::string>& arguments) {
    const Outcome outcome = run_program(arguments);
    EXPECT_EQ(outcome.exit_code, 1);
    EXPECT_THAT(outcome.errors, MatchesRegex("byteexpress perf: [^\n]+\n"));
    return outcome.errors;
  }

  // Of one without warm-up and with a long duration: by then it does nothing else.
  static void wait_until_measuring(const apps::ChildProcess& client) {
    ASSERT_TRUE(wait_for([&] { return cpu_time_of(client.pid()) > 500ms; }));
  }

  static void expect_sane(const nlohmann::json& figures, double bytes) {
    EXPECT_GT(figures["messages"], 0);
    EXPECT_GT(figures["seconds"], 0.0);
    EXPECT_GT(figures["mean_us"], 0.0);
    EXPECT_LE(figures["p50_us"], figures["p99_us"]);
    EXPECT_LE(figures["p99_us"], figures["max_us"]);
    EXPECT_NEAR(figures["gigabytes_per_second"].get<double>(),
                figures["messages_per_second"].get<double>() * bytes / 1e9, 1e-6);
    EXPECT_NEAR(figures["messages_per_second"].get<double>(),
                figures["messages"].get<double>() / figures["seconds"].get<double>(), 1e-3);
  }

  TemporaryDirectory directory_;
  std::string table_;
};

class PerfOver : public Perf, public testing::WithParamInterface<const char*> {};

// That the server received what was sent, message by message and byte by byte, the client itself
// has compared: it would have failed.
TEST_P(PerfOver, LatencyOfAllSizes) {
  PerfServer server({"--transport", GetParam()});
  const nlohmann::json json = measure(
      server.address,
      {"--test", "latency", "--sizes", "1,32,4KiB..16KiB,300000", "--transport", GetParam()});
  EXPECT_EQ(json["test"], "latency");
  EXPECT_EQ(json["transport"], GetParam());
  EXPECT_EQ(json["server"]["transport"], GetParam());
  EXPECT_FALSE(json["interrupted"].get<bool>());
  std::vector<uint32_t> sizes;
  for (const auto& size : json["sizes"]) {
    sizes.push_back(size["bytes"]);
    ASSERT_EQ(size["repetitions"].size(), 2u);
    for (const auto& one : size["repetitions"]) expect_sane(one, sizes.back());
  }
  EXPECT_THAT(sizes, testing::ElementsAre(1, 32, 4096, 8192, 16384, 300000));
  EXPECT_THAT(table_, HasSubstr("latency over"));
  server.end();
}

TEST_P(PerfOver, BandwidthOverSeveralSocketsAndThreads) {
  PerfServer server({"--transport", GetParam(), "--threads", "2"});
  const nlohmann::json json =
      measure(server.address, {"--test", "bandwidth", "--sizes", "1MiB", "--sockets", "3",
                               "--threads", "2", "--reply-bytes", "100", "--transport", GetParam(),
                               "--set", "memory.cap_bytes=128MiB"});
  ASSERT_EQ(json["sizes"].size(), 1u);
  for (const auto& one : json["sizes"][0]["repetitions"]) expect_sane(one, 1 << 20);
  EXPECT_EQ(json["plan"]["threads"], 2);
  EXPECT_EQ(json["server"]["io_threads"], 2);
  EXPECT_GT(json["server"]["peak_registered_bytes"], 0);
  server.end();
}

TEST_P(PerfOver, RateWithoutTouchingBesideLargeFlows) {
  PerfServer server({"--transport", GetParam()});
  const nlohmann::json json =
      measure(server.address, {"--test", "rate", "--no-touch", "--background", "2", "--transport",
                               GetParam(), "--set", "engine.fragment_bytes=16KiB"});
  const auto& median = json["sizes"][0]["median"];
  EXPECT_EQ(json["sizes"][0]["bytes"], 512);
  expect_sane(json["sizes"][0]["repetitions"][0], 512);
  EXPECT_GT(median["background_gigabytes_per_second"], 0.0);
  EXPECT_FALSE(json["plan"]["touch"].get<bool>());
  EXPECT_EQ(json["in_effect"]["fragment_bytes"], GetParam() == std::string("tcp") ? 0 : 16384);
  server.end();
}

INSTANTIATE_TEST_SUITE_P(Transports, PerfOver, testing::Values("softnic", "tcp"),
                         [](const auto& param) { return std::string(param.param); });

TEST_F(Perf, OnceEndsTheServerWithItsFirstClient) {
  PerfServer server({"--once"});
  const nlohmann::json json = measure(server.address, {"--sizes", "64"});
  EXPECT_EQ(json["device"], "softnic (software RNIC)");
  const Status ended = server.process->wait();
  EXPECT_TRUE(ended.ok()) << ended.to_string();
  EXPECT_THAT(line_of(*server.process), HasSubstr("latency over softnic (software RNIC)"));
  EXPECT_THAT(line_of(*server.process), MatchesRegex("done: [0-9]+ messages, [0-9]+ bytes"));
}

TEST_F(Perf, TwoClientsAtOnceAreServedAndToldOfEachOther) {
  PerfServer server;
  const std::string json = directory_.file("first.json");
  const auto first = start_program("first", {"perf", "client", server.address, "--sizes", "32",
                                             "--duration", "1h", "--warmup", "0", "--json", json});
  wait_until_measuring(*first);
  measure(server.address, {"--sizes", "32"});
  EXPECT_THAT(table_, HasSubstr("2 clients at once"));
  first->signal(SIGINT);
  const Status ended = first->wait();
  EXPECT_TRUE(ended.ok()) << ended.to_string();
  server.end();
}

TEST_F(Perf, ASignalEndsWithWhatWasMeasured) {
  PerfServer server;
  const std::string file = directory_.file("perf.json");
  const auto client =
      start_program("client", {"perf", "client", server.address, "--sizes", "32,64", "--duration",
                               "1h", "--warmup", "0", "--json", file});
  wait_until_measuring(*client);
  client->signal(SIGINT);
  const Status ended = client->wait();
  ASSERT_TRUE(ended.ok()) << ended.to_string();
  const nlohmann::json json = nlohmann::json::parse(read_file(file));
  EXPECT_TRUE(json["interrupted"].get<bool>());
  ASSERT_EQ(json["sizes"].size(), 1u);
  expect_sane(json["sizes"][0]["median"], 32);
  server.end();
}

// --- Who is not what it should be ---

// A socket of a peer that says what it likes.
class Stranger final : public SocketHandler {
 public:
  explicit Stranger(const std::string& server) : server_(*Address::parse(server)) {
    NodeOptions options = node_options();
    options.driven = true;
    node_ = Node::create(kernel_world(), options).value();
  }
  virtual ~Stranger() { node_.reset(); }

  void on_open(Socket& socket) override { socket_ = &socket; }
  void on_message(Socket&, Buffer message) override {
    answer_.assign(message.data(), message.data() + message.size());
  }
  void on_sent(Socket&, uint64_t, const Status&) override {}
  void on_closed(Socket&, const Status&) override {
    socket_ = nullptr;
    closed_ = true;
  }

  // What the server says to these first bytes before it closes.
  Status answer_to(const std::vector<uint8_t>& bytes) {
    closed_ = false;
    answer_.clear();
    node_->connect(server_, {.connect_timeout = kPatience, .transport = {}}, this);
    EXPECT_TRUE(drive([this] { return socket_ != nullptr; }));
    if (socket_ == nullptr) return Status(Code::kUnavailable, "not connected");
    EXPECT_TRUE(apps::send_frame(node_->pool(), *socket_, bytes).ok());
    EXPECT_TRUE(drive([this] { return closed_; })) << "it does not close";
    return apps::decode_welcome(answer_);
  }

 private:
  bool drive(const std::function<bool()>& done) {
    IoThread& thread = node_->thread(0);
    return thread.run_until(done, thread.now() + kPatience);
  }

  const Address server_;
  std::unique_ptr<Node> node_;
  Socket* socket_ = nullptr;
  bool closed_ = false;
  std::vector<uint8_t> answer_;
};

TEST_F(Perf, TheServerNamesWhatIsWrongWithAGreetingAndServesOn) {
  PerfServer server;
  auto its = std::make_unique<Stranger>(server.address);
  Stranger& stranger = *its;
  const auto greeting = apps::encode_greeting({.role = apps::PerfGreeting::Role::kData});

  EXPECT_THAT(stranger.answer_to({'G', 'E', 'T', ' ', '/', '\r', '\n'}).message(),
              HasSubstr("does not speak the protocol of byteexpress perf"));
  std::vector<uint8_t> changed = greeting;
  changed[4] = 2;
  EXPECT_THAT(stranger.answer_to(changed).message(),
              AllOf(HasSubstr("version 2"), HasSubstr("we speak 1")));
  changed = greeting;
  changed.pop_back();
  EXPECT_THAT(stranger.answer_to(changed).message(), HasSubstr("malformed greeting"));
  EXPECT_THAT(stranger
                  .answer_to(apps::encode_greeting(
                      {.role = apps::PerfGreeting::Role::kData, .reply_bytes = UINT32_MAX}))
                  .message(),
              HasSubstr("4294967295"));
  EXPECT_THAT(stranger.answer_to(greeting).message(), HasSubstr("no session"));

  its.reset();  // who is not driven cannot let go of the server's memory
  measure(server.address, {"--sizes", "32"});
  server.end();
}

// Answers a greeting with a frame of its choice.
class FalseServer {
 public:
  explicit FalseServer(std::vector<uint8_t> answer) : handler_{std::move(answer), nullptr} {
    node_ = Node::create(kernel_world(), node_options()).value();
    handler_.node = node_.get();
    listener_ = node_->listen(loopback(0), [this](Socket&) { return &handler_; }).value();
  }
  ~FalseServer() {
    listener_.reset();
    node_.reset();
  }
  std::string address() const { return listener_->address().to_string(); }

 private:
  struct Handler final : SocketHandler {
    Handler(std::vector<uint8_t> bytes, Node* its) : answer(std::move(bytes)), node(its) {}
    virtual ~Handler() = default;
    void on_open(Socket&) override {}
    void on_message(Socket& socket, Buffer) override {
      apps::send_frame(node->pool(), socket, answer).ignore();
    }
    void on_sent(Socket&, uint64_t, const Status&) override {}
    void on_closed(Socket&, const Status&) override {}
    const std::vector<uint8_t> answer;
    Node* node;
  };
  Handler handler_;
  std::unique_ptr<Node> node_;
  std::unique_ptr<Listener> listener_;
};

TEST_F(Perf, TheClientNamesAServerOfAnotherVersion) {
  std::vector<uint8_t> welcome = apps::encode_welcome(ok_status());
  welcome[4] = 7;
  const FalseServer server(welcome);
  EXPECT_THAT(failure(client_arguments(server.address(), {})),
              AllOf(HasSubstr("version 7"), HasSubstr("we speak 1")));
}

TEST_F(Perf, TheClientNamesAServerThatIsNone) {
  const FalseServer server({'H', 'T', 'T', 'P'});
  EXPECT_THAT(failure(client_arguments(server.address(), {})),
              HasSubstr("does not speak the protocol of byteexpress perf"));
  const Server rpc = start_server("0/1", "tcp");
  EXPECT_THAT(failure(client_arguments(rpc.address, {})), HasSubstr("perf server"));
  EXPECT_THAT(failure(client_arguments("127.0.0.1:1", {})),
              AllOf(HasSubstr("127.0.0.1:1"), HasSubstr("ECONNREFUSED")));
}

TEST_F(Perf, HelpIsNoFailureAndTeaches) {
  for (const char* end : {"server", "client"}) {
    const Outcome outcome = run_program({"perf", end, "--help"});
    EXPECT_EQ(outcome.exit_code, 0);
    EXPECT_GT(outcome.output.size(), 200u) << end;
  }
}

TEST_F(Perf, WrongUsageExitsWithTwo) {
  for (const std::vector<std::string>& arguments : std::vector<std::vector<std::string>>{
           {"perf"},
           {"perf", "client"},
           {"perf", "client", "127.0.0.1:1", "--test", "beauty"},
           {"perf", "client", "127.0.0.1:1", "--sizes", "64..32"},
           {"perf", "client", "127.0.0.1:1", "--outstanding", "0"},
           {"perf", "client", "127.0.0.1:1", "--reply-bytes", "2000000"}}) {
    EXPECT_EQ(run_program(arguments).exit_code, 2) << arguments.back();
  }
}

}  // namespace
}  // namespace be::cluster
