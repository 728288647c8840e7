// kill -9 of a server, or a server that stands still, while clients are at work.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>

#include <csignal>
#include <filesystem>
#include <iterator>
#include <optional>

#include "be/base/world.h"
#include "be/ps/parameter_client.h"
#include "tests/cluster/common/machine_load.h"
#include "tests/cluster/common/program.h"

namespace be::cluster {
namespace {

using testing::HasSubstr;

constexpr Nanoseconds kTimeout = 300ms;
constexpr Nanoseconds kSlack = 50ms;

class ServerDeath : public testing::TestWithParam<std::string> {
 protected:
  static TransportChoice choice() {
    return GetParam() == "tcp" ? TransportChoice::kTcp : TransportChoice::kSoftnic;
  }

  void SetUp() override {
    servers_ = start_servers(3, GetParam());
    NodeOptions node;
    node.driven = true;
    node.transport = choice();
    node.memory.cap_bytes = size_t{64} << 20;
    node_ = Node::create(kernel_world(), node).value();
    ps::ParameterClientOptions options;
    for (const Server& server : servers_) {
      options.servers.push_back(Address::parse(server.address).value());
    }
    options.channel.request_timeout = kTimeout;
    client_ = ps::ParameterClient::connect(*node_, options).value();
    make_table();
    for (ps::Key key = 0; key < 100; ++key) keys_.push_back(key);
  }

  void make_table() {
    const auto table = client_->create_table(
        {"model", "table", 4, {ps::OptimizerKind::kSgd, 0.1f, 0.1f}, 0.1f, 1});
    ASSERT_TRUE(table.ok()) << table.status().to_string();
    table_ = *table;
  }

  // One Fetch of keys of all servers, which must end in time whatever becomes of it.
  Status fetch() {
    const Time start = node_->world().now();
    const Nanoseconds kept_before = load_.kept_from_us();
    Status status = client_->fetch_and_wait(*table_, keys_, {}).status();
    const Nanoseconds kept = load_.kept_from_us() - kept_before;
    EXPECT_LT(node_->world().now() - start, kTimeout + kSlack + kept) << status.to_string();
    return status;
  }

  // Stopped is what it is when all its threads are, which takes a moment.
  void stand_still(size_t index) {
    servers_[index].process->signal(SIGSTOP);
    siginfo_t info;
    ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(servers_[index].process->pid()), &info,
                       WSTOPPED | WNOWAIT),
              0);
  }

  void restart(size_t index) {
    servers_[index].process->wait().ignore();
    servers_[index] = start_server(fmt::format("{}/3", index), GetParam(), servers_[index].address);
  }

  MachineLoad load_;
  std::vector<Server> servers_;
  std::unique_ptr<Node> node_;
  std::unique_ptr<ps::ParameterClient> client_;
  const ps::RemoteTable* table_ = nullptr;
  std::vector<ps::Key> keys_;
};

TEST_P(ServerDeath, CallsEndWithANamedErrorInTimeAndSucceedWhenItIsBack) {
  ASSERT_TRUE(fetch().ok());
  // One call is under way when the server dies.
  std::optional<Status> under_way;
  stand_still(1);
  const Time start = node_->world().now();
  ASSERT_TRUE(client_
                  ->fetch(*table_, keys_, {},
                          [&](const Result<ps::FetchedRows>& rows) { under_way = rows.status(); })
                  .ok());
  node_->thread(0).run_until([] { return false; }, start + 20ms);
  EXPECT_FALSE(under_way.has_value());
  servers_[1].process->signal(SIGKILL);
  node_->thread(0).run_until([&] { return under_way.has_value(); }, start + kTimeout + kSlack + 1s);
  ASSERT_TRUE(under_way.has_value());
  EXPECT_LT(node_->world().now() - start, kTimeout + kSlack + load_.kept_from_us());
  EXPECT_THAT(under_way->message(), HasSubstr("server 1 (" + servers_[1].address + ")"));

  for (int i = 0; i < 3; ++i) {
    const Status status = fetch();
    EXPECT_FALSE(status.ok());
    EXPECT_THAT(status.message(), HasSubstr("server 1 (" + servers_[1].address + ")"));
  }
  restart(1);
  make_table();
  const Status status = fetch();
  EXPECT_TRUE(status.ok()) << status.to_string();
}

TEST_P(ServerDeath, AServerThatStandsStillCostsNoMoreThanTheDeadline) {
  stand_still(2);
  for (int i = 0; i < 3; ++i) {
    const Status status = fetch();
    EXPECT_EQ(status.code(), Code::kDeadlineExceeded) << status.to_string();
    EXPECT_THAT(status.message(), HasSubstr("server 2 (" + servers_[2].address + ")"));
  }
  servers_[2].process->signal(SIGCONT);
  const Status status = fetch();
  EXPECT_TRUE(status.ok()) << status.to_string();
}

TEST_P(ServerDeath, DeadServersLeaveNothingBehindInTheClient) {
  // An engine replaces consumed receives in batches of half its queue, so what three of them hold
  // differs by that much from one moment to the next; one buffer lost a death is more.
  constexpr int kReceiveBatches = 3 * 16;
  constexpr int kDeaths = kReceiveBatches + 12;
  struct Held {
    ptrdiff_t descriptors;
    int64_t allocations;
  };
  const auto held = [&] {
    const std::filesystem::directory_iterator descriptors("/proc/self/fd");
    return Held{std::distance(begin(descriptors), end(descriptors)),
                static_cast<int64_t>(node_->pool().stats().allocations)};
  };
  const auto die_and_return = [&] {
    servers_[1].process->signal(SIGKILL);
    EXPECT_FALSE(fetch().ok());
    restart(1);
    make_table();
    EXPECT_TRUE(fetch().ok());
  };
  die_and_return();
  const Held once = held();
  for (int i = 0; i < kDeaths; ++i) die_and_return();
  // What a dead peer might still touch is given back when its exit has been noticed.
  const Time patience = node_->world().now() + 5s;
  node_->thread(0).run_until([&] { return held().descriptors == once.descriptors; }, patience);
  EXPECT_EQ(held().descriptors, once.descriptors);
  EXPECT_LE(held().allocations, once.allocations + kReceiveBatches);
}

TEST_P(ServerDeath, ATrainerAndARankerGoOnWhenTheServerIsBack) {
  TemporaryDirectory directory;
  write_file(directory.file("ratings.tsv"), made_up_ratings(3000));
  const auto arguments = [&](const char* command) {
    return std::vector<std::string>{command,
                                    "--servers",
                                    addresses_of(servers_),
                                    "--data",
                                    directory.file("ratings.tsv"),
                                    "--transport",
                                    GetParam(),
                                    "--events",
                                    "--patience",
                                    "30s"};
  };
  const auto wait_for = [](apps::ChildProcess& child, const std::string& text) {
    while (child.stdout_fd() >= 0) {
      while (const auto line = child.next_line()) {
        if (line->find(text) != std::string::npos) return true;
      }
      pollfd wait = {child.stdout_fd(), POLLIN, 0};
      ::poll(&wait, 1, -1);
      child.read_output();
    }
    return false;
  };
  std::vector<std::string> train = arguments("train");
  train.insert(train.end(), {"--epochs", "100000", "--batch", "64"});
  std::vector<std::string> rank = arguments("rank");
  rank.insert(rank.end(), {"--rounds", "100000", "--requests", "100"});

  const auto trainer = start_program("trainer", train);
  ASSERT_TRUE(wait_for(*trainer, "\"epoch\":2")) << trainer->wait().to_string();
  const auto ranker = start_program("ranker", rank);
  ASSERT_TRUE(wait_for(*ranker, "\"round\":1")) << ranker->wait().to_string();

  servers_[0].process->signal(SIGKILL);
  restart(0);
  for (const auto& child : {trainer.get(), ranker.get()}) {
    // Two further stretches: the first may have ended before the server died.
    const std::string kind = child == trainer.get() ? "\"event\":\"epoch\"" : "\"event\":\"round\"";
    for (int stretch = 0; stretch < 200; ++stretch) {
      ASSERT_TRUE(wait_for(*child, kind)) << child->wait().to_string();
      if (child->errors().find("answer again") != std::string::npos) break;
    }
    EXPECT_THAT(child->errors(), HasSubstr("server 0 (" + servers_[0].address + ")"));
    EXPECT_THAT(child->errors(), HasSubstr("servers answer again"));
  }
}

INSTANTIATE_TEST_SUITE_P(Over, ServerDeath, testing::Values("softnic", "tcp"),
                         [](const auto& over) { return over.param; });

}  // namespace
}  // namespace be::cluster
