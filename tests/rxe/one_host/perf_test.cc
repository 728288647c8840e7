// `byteexpress perf` between two processes over rxe: every test, a short time each.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <csignal>
#include <nlohmann/json.hpp>

#include "tests/cluster/common/program.h"

namespace be::cluster {
namespace {

using testing::HasSubstr;

class PerfOverRxe : public ::testing::Test {
 protected:
  void SetUp() override {
    std::vector<std::string> arguments = {"perf", "server"};
    arguments.insert(arguments.end(), both_.begin(), both_.end());
    server_ = start_program("perf server", arguments);
    std::optional<std::string> line;
    while (!(line = server_->next_line()) && server_->stdout_fd() >= 0) {
      pollfd waiting = {server_->stdout_fd(), POLLIN, 0};
      ::poll(&waiting, 1, -1);
      server_->read_output();
    }
    ASSERT_THAT(line.value_or(""), testing::StartsWith("ready ")) << server_->errors();
    address_ = line->substr(6);
  }
  void TearDown() override {
    server_->signal(SIGINT);
    EXPECT_TRUE(server_->wait().ok()) << server_->errors();
  }

  // The figures of one size, checked against each other.
  nlohmann::json measure(const std::string& test, uint32_t bytes) {
    const std::string file = directory_.file("perf.json");
    std::vector<std::string> arguments = {"perf",
                                          "client",
                                          address_,
                                          "--test",
                                          test,
                                          "--sizes",
                                          std::to_string(bytes),
                                          "--duration",
                                          "400ms",
                                          "--warmup",
                                          "50ms",
                                          "--repetitions",
                                          "1",
                                          "--json",
                                          file};
    arguments.insert(arguments.end(), both_.begin(), both_.end());
    const Outcome outcome = run_program(arguments);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.errors;
    const nlohmann::json json = nlohmann::json::parse(read_file(file), nullptr, false);
    EXPECT_EQ(json["test"], test);
    EXPECT_THAT(json["device"].get<std::string>(), HasSubstr("rxe0"));
    EXPECT_EQ(json["sizes"][0]["bytes"], bytes);
    const nlohmann::json figures = json["sizes"][0]["repetitions"][0];
    EXPECT_GT(figures["messages"], 0);
    EXPECT_GE(figures["seconds"], 0.1);
    EXPECT_GT(figures["mean_us"], 0.0);
    EXPECT_LE(figures["p50_us"], figures["p99_us"]);
    EXPECT_LE(figures["p99_us"], figures["max_us"]);
    EXPECT_NEAR(figures["messages_per_second"].get<double>(),
                figures["messages"].get<double>() / figures["seconds"].get<double>(), 1e-3);
    EXPECT_NEAR(figures["gigabytes_per_second"].get<double>(),
                figures["messages_per_second"].get<double>() * bytes / 1e9, 1e-6);
    return figures;
  }

  const std::vector<std::string> both_ = {"--transport", "rdma",
                                          "--set",       "transport.handshake_timeout=60s",
                                          "--set",       "engine.keepalive_timeout=60s",
                                          "--set",       "memory.cap_bytes=128MiB"};
  TemporaryDirectory directory_;
  std::unique_ptr<apps::ChildProcess> server_;
  std::string address_;
};

TEST_F(PerfOverRxe, EveryTestGivesPlausibleFigures) {
  const nlohmann::json latency = measure("latency", 32);
  // One at a time: the mean and the rate are the same figure.
  EXPECT_NEAR(latency["mean_us"].get<double>() * latency["messages_per_second"].get<double>() / 1e6,
              1.0, 0.3);
  const nlohmann::json bandwidth = measure("bandwidth", 1 << 20);
  const nlohmann::json rate = measure("rate", 512);
  EXPECT_GT(bandwidth["gigabytes_per_second"], rate["gigabytes_per_second"]);
  EXPECT_GT(rate["messages_per_second"], bandwidth["messages_per_second"]);
}

}  // namespace
}  // namespace be::cluster
