// The demonstration as a whole, small: figures, children that die, and that none is left behind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/cluster/common/program.h"

namespace be::cluster {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

class Demo : public testing::Test {
 protected:
  void SetUp() override { write_file(data_, made_up_ratings(3000)); }

  std::vector<std::string> arguments(const char* epochs) const {
    return {"demo", "--data",   data_,  "--servers", "2",  "--trainers",
            "2",    "--epochs", epochs, "--rounds",  "2",  "--requests",
            "50",   "--pushes", "20",   "--json",    json_};
  }

  // Processes whose parent is `parent`.
  static std::vector<pid_t> children_of(pid_t parent) {
    std::vector<pid_t> children;
    for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
      const std::string stat = read_file(entry.path() / "stat");
      const size_t after_name = stat.rfind(") ");
      int of = 0;
      if (after_name == std::string::npos) continue;
      if (std::sscanf(stat.c_str() + after_name, ") %*c %d", &of) == 1 && of == parent) {
        children.push_back(std::stoi(entry.path().filename()));
      }
    }
    return children;
  }

  static std::string command_line(pid_t pid) {
    std::string text = read_file("/proc/" + std::to_string(pid) + "/cmdline");
    std::replace(text.begin(), text.end(), '\0', ' ');
    return text;
  }

  static std::vector<pid_t> living(const std::vector<pid_t>& pids) {
    std::vector<pid_t> alive;
    for (const pid_t pid : pids) {
      if (command_line(pid).find("--shard") != std::string::npos ||
          command_line(pid).find("--paced") != std::string::npos) {
        alive.push_back(pid);
      }
    }
    return alive;
  }

  // Reads the demo's messages until training is on the way.
  static void wait_until_training(apps::ChildProcess& demo) {
    while (demo.errors().find("training 1/") == std::string::npos) {
      ASSERT_GE(demo.stderr_fd(), 0) << demo.wait().to_string();
      pollfd wait = {demo.stderr_fd(), POLLIN, 0};
      ::poll(&wait, 1, -1);
      demo.read_output();
    }
  }

  TemporaryDirectory directory_;
  const std::string data_ = directory_.file("ratings.tsv");
  const std::string json_ = directory_.file("demo.json");
};

TEST_F(Demo, ComparesBothTransportsInOneTableAndOneJsonFile) {
  const Outcome outcome = run_program(arguments("3"));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.errors;
  EXPECT_THAT(outcome.output, HasSubstr("softnic/tcp"));
  const nlohmann::json figures = nlohmann::json::parse(read_file(json_));
  for (const char* transport : {"softnic", "tcp"}) {
    const nlohmann::json& of = figures[transport];
    EXPECT_EQ(of["transport"], transport);
    EXPECT_GT(of["auc"], 0.65) << transport;  // there is a taste to be learnt
    EXPECT_EQ(of["fetch"]["count"], 100);
    EXPECT_EQ(of["push"]["count"], 40);
    for (const char* operation : {"fetch", "push"}) {
      EXPECT_GT(of[operation]["mean_us"], 0);
      EXPECT_GE(of[operation]["p99_us"], of[operation]["p50_us"]);
      EXPECT_GT(of[operation]["bytes_per_op"], 0);
      EXPECT_GT(of[operation]["cpu_us_per_op"], 0);
    }
    EXPECT_GT(of["peak_registered_bytes"], 0);
  }
}

TEST_F(Demo, AChildThatDiesIsNamedAndNoneIsLeft) {
  const auto demo = start_program("demo", arguments("10000"));
  wait_until_training(*demo);
  const std::vector<pid_t> children = children_of(demo->pid());
  EXPECT_EQ(living(children).size(), 8u);  // 2 x (2 servers + 2 trainers)
  for (const pid_t child : children) {
    if (command_line(child).find("--shard 1/2 ") == std::string::npos) continue;
    ::kill(child, SIGKILL);
    break;
  }
  demo->wait().ignore();
  EXPECT_EQ(demo->exit_code(), 1);
  EXPECT_THAT(demo->errors(), HasSubstr("server 1 ("));
  EXPECT_THAT(demo->errors(), HasSubstr("killed by signal 9"));
  EXPECT_THAT(living(children), IsEmpty());
  EXPECT_FALSE(std::filesystem::exists(json_));
}

TEST_F(Demo, NoChildOutlivesADemoThatIsKilled) {
  const auto demo = start_program("demo", arguments("10000"));
  wait_until_training(*demo);
  const std::vector<pid_t> children = children_of(demo->pid());
  EXPECT_EQ(living(children).size(), 8u);
  demo->signal(SIGKILL);
  demo->wait().ignore();
  // The kernel kills them when it buries the demo; each is gone a moment later.
  for (int i = 0; i < 500 && !living(children).empty(); ++i) ::poll(nullptr, 0, 10);
  EXPECT_THAT(living(children), IsEmpty());
}

}  // namespace
}  // namespace be::cluster
