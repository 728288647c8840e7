#include "be/base/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <string>

#include "be/base/log.h"

namespace be {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

enum class Colour { kRed, kGreen };

class ConfigTest : public testing::Test {
 protected:
  ConfigTest() {
    config_.section("engine")
        .integer("grants", &grants_, {1, 4096}, "open grants")
        .integer("offset", &offset_, {-10, 10}, "signed")
        .bytes("eager_bytes", &eager_bytes_, {64, 1 << 20}, "largest SEND")
        .bytes("send_window_bytes", &window_bytes_, {.min = 4096, .max = 1 << 20, .or_zero = true},
               "0: off")
        .bytes("cap_bytes", &cap_bytes_, {}, "any size")
        .duration("keepalive_interval", &interval_, {1ms, 1h}, "between ticks")
        .rate("link_rate", &rate_, {.min = 1'000, .or_zero = true}, "0: off")
        .boolean("relaxed", &relaxed_, "relaxed ordering")
        .choice("colour", &colour_, {{"red", Colour::kRed}, {"green", Colour::kGreen}}, "a colour");
    config_.section("rpc.quarantine").duration("window", &quarantine_, {.min = 1s}, "time");
    config_.section("").string("name", &name_, "of the process").secret("secret", &secret_, "word");
    config_.section("rpc").duration("request_timeout", &timeout_, {}, "Tr");
    config_.add_profile("paper", {{"engine.grants", "7"}, {"rpc.request_timeout", "40ms"}});
    config_.add_profile("small", {{"engine.eager_bytes", "1KiB"}});
  }

  void TearDown() override { set_log_level("warn").ignore(); }

  std::string failure_of_text(const std::string& toml) {
    const Status status = config_.use_text(toml, "f.toml");
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << toml;
    return status.message();
  }

  Status use_environment(std::vector<const char*> variables) {
    variables.push_back(nullptr);
    return config_.use_environment(variables.data());
  }

  uint32_t grants_ = 16;
  uint64_t rate_ = 0;
  int offset_ = -3;
  uint32_t eager_bytes_ = 4096;
  size_t window_bytes_ = 0;
  size_t cap_bytes_ = 0;
  Nanoseconds interval_ = 1s;
  bool relaxed_ = false;
  Colour colour_ = Colour::kGreen;
  Nanoseconds quarantine_ = 5min;
  Nanoseconds timeout_ = 1s;
  std::string name_ = "node \"1\"";
  std::string secret_;
  Config config_;
};

TEST_F(ConfigTest, FieldsKeepTheirInitialValuesAsDefaults) {
  EXPECT_TRUE(config_.use_text("", "f.toml").ok());
  EXPECT_EQ(grants_, 16u);
  EXPECT_EQ(colour_, Colour::kGreen);
}

TEST_F(ConfigTest, FileSetsEveryType) {
  const Status status = config_.use_text(R"(
name = "ranker"
secret = "hush"
[engine]
grants = 8
offset = -1
eager_bytes = "64KiB"
cap_bytes = 4096
keepalive_interval = "10ms"
link_rate = "25Gbps"
relaxed = true
colour = "red"
[rpc]
quarantine.window = "1min"
)",
                                         "f.toml");
  ASSERT_TRUE(status.ok()) << status.to_string();
  EXPECT_EQ(name_, "ranker");
  EXPECT_EQ(secret_, "hush");
  EXPECT_EQ(grants_, 8u);
  EXPECT_EQ(offset_, -1);
  EXPECT_EQ(eager_bytes_, 65536u);
  EXPECT_EQ(cap_bytes_, 4096u);
  EXPECT_EQ(interval_, 10ms);
  EXPECT_EQ(rate_, 25'000'000'000u);
  EXPECT_TRUE(relaxed_);
  EXPECT_EQ(colour_, Colour::kRed);
  EXPECT_EQ(quarantine_, 1min);
}

TEST_F(ConfigTest, PrecedenceIsProfileFileEnvironmentCode) {
  ASSERT_TRUE(config_.set("profile", "paper").ok());
  EXPECT_EQ(grants_, 7u);
  ASSERT_TRUE(config_.use_text("engine.grants = 8", "f.toml").ok());
  EXPECT_EQ(grants_, 8u);
  ASSERT_TRUE(use_environment({"PATH=/bin", "BE_ENGINE_GRANTS=9"}).ok());
  EXPECT_EQ(grants_, 9u);
  ASSERT_TRUE(config_.set("engine.grants", "10").ok());
  EXPECT_EQ(grants_, 10u);
}

TEST_F(ConfigTest, PrecedenceDoesNotDependOnTheOrderOfTheCalls) {
  ASSERT_TRUE(config_.set("engine.grants", "10").ok());
  ASSERT_TRUE(use_environment({"BE_ENGINE_GRANTS=9", "BE_RPC_REQUEST_TIMEOUT=9s"}).ok());
  ASSERT_TRUE(config_.use_text("profile = 'paper'\nengine.grants = 8", "f.toml").ok());
  EXPECT_EQ(grants_, 10u);
  EXPECT_EQ(timeout_, 9s);
}

TEST_F(ConfigTest, OverruledValueIsStillChecked) {
  ASSERT_TRUE(config_.set("engine.grants", "10").ok());
  EXPECT_THAT(failure_of_text("engine.grants = 0"), HasSubstr("between 1 and 4096"));
}

TEST_F(ConfigTest, ProfileChosenByEachSourceAndReplacedByAHigherOne) {
  ASSERT_TRUE(config_.use_text("profile = 'paper'", "f.toml").ok());
  EXPECT_EQ(grants_, 7u);
  EXPECT_EQ(timeout_, 40ms);
  ASSERT_TRUE(use_environment({"BE_PROFILE=small"}).ok());
  EXPECT_EQ(grants_, 16u);
  EXPECT_EQ(timeout_, 1s);
  EXPECT_EQ(eager_bytes_, 1024u);
  ASSERT_TRUE(config_.set("profile", "default").ok());
  EXPECT_EQ(eager_bytes_, 4096u);
}

TEST_F(ConfigTest, UnknownProfileIsNamedWithThoseThatExist) {
  EXPECT_EQ(config_.set("profile", "papr", "--set").message(),
            "--set: profile: 'papr' must be one of default, paper, small");
}

TEST_F(ConfigTest, ProfileWithAnImpossibleValueSaysWhichProfile) {
  config_.add_profile("broken", {{"engine.grants", "0"}});
  EXPECT_THAT(config_.set("profile", "broken").message(),
              HasSubstr("profile broken: engine.grants: '0' must be between 1 and 4096"));
}

TEST_F(ConfigTest, UnknownKeyNamesFileLineKeyAndTheNearestOne) {
  EXPECT_EQ(failure_of_text("\n\n[engine]\ngrant = 3\n"),
            "f.toml:4: unknown key 'engine.grant' (did you mean 'engine.grants'?)");
  EXPECT_EQ(failure_of_text("zzzzzzz = 3"), "f.toml:1: unknown key 'zzzzzzz'");
  EXPECT_EQ(failure_of_text("[enigne]"), "f.toml:1: unknown key 'enigne'");
  EXPECT_EQ(failure_of_text("engine.grants.more = 1"),
            "f.toml:1: unknown key 'engine.grants.more' (did you mean 'engine.grants'?)");
}

TEST_F(ConfigTest, EmptyKnownSectionIsFine) {
  EXPECT_TRUE(config_.use_text("[engine]\n[rpc]\n[rpc.quarantine]", "f.toml").ok());
}

TEST_F(ConfigTest, ImpossibleValueNamesFileLineKeyAndValue) {
  EXPECT_EQ(failure_of_text("\n[engine]\ngrants = 5000"),
            "f.toml:3: engine.grants: '5000' must be between 1 and 4096");
  EXPECT_THAT(failure_of_text("engine.grants = -1"), HasSubstr("'-1' is no whole number"));
  EXPECT_THAT(failure_of_text("engine.grants = 'x'"), HasSubstr("'x' is no whole number"));
  EXPECT_THAT(failure_of_text("engine.grants = 99999999999"), HasSubstr("is too large"));
  EXPECT_THAT(failure_of_text("engine.offset = -11"), HasSubstr("between -10 and 10"));
  EXPECT_THAT(failure_of_text("engine.eager_bytes = '64KB'"), HasSubstr("'64KB' is no size"));
  EXPECT_THAT(failure_of_text("engine.eager_bytes = '2MiB'"), HasSubstr("between 64B and 1MiB"));
  EXPECT_THAT(failure_of_text("engine.eager_bytes = '8GiB'"), HasSubstr("is too large"));
  EXPECT_THAT(failure_of_text("rpc.quarantine.window = '1ms'"), HasSubstr("at least 1s"));
  EXPECT_THAT(failure_of_text("engine.keepalive_interval = 5"), HasSubstr("'5' is no duration"));
  EXPECT_THAT(failure_of_text("engine.keepalive_interval = '2h'"), HasSubstr("1ms and 1h"));
  EXPECT_THAT(failure_of_text("engine.link_rate = 25"), HasSubstr("'25' is no rate"));
  EXPECT_THAT(failure_of_text("engine.link_rate = '1bps'"), HasSubstr("at least 1Kbps"));
  EXPECT_THAT(failure_of_text("engine.relaxed = 'maybe'"), HasSubstr("one of true, false"));
  EXPECT_THAT(failure_of_text("engine.colour = 'blue'"), HasSubstr("one of red, green"));
  EXPECT_EQ(grants_, 16u);
  EXPECT_EQ(eager_bytes_, 4096u);
}

TEST_F(ConfigTest, ZeroBesidesTheRangeIsAllowedWhereDeclared) {
  EXPECT_THAT(failure_of_text("engine.send_window_bytes = 1"),
              HasSubstr("must be 0 or between 4KiB and 1MiB"));
  EXPECT_TRUE(config_.set("engine.send_window_bytes", "4KiB").ok());
  EXPECT_TRUE(config_.set("engine.send_window_bytes", "0").ok());
}

TEST_F(ConfigTest, TomlTypesThatNoKeyTakesAreRefused) {
  EXPECT_THAT(failure_of_text("engine.grants = [1, 2]"), HasSubstr("engine.grants: a TOML array"));
  EXPECT_THAT(failure_of_text("engine.grants = 1.5"), HasSubstr("floating-point"));
  EXPECT_THAT(failure_of_text("engine.grants = {}"), HasSubstr("a TOML table"));
}

TEST_F(ConfigTest, MalformedFileNamesTheLine) {
  EXPECT_THAT(failure_of_text("name = 'x'\n[engine\n"), StartsWith("f.toml:2: "));
  EXPECT_THAT(failure_of_text("name = 'x'\nname = 'y'\n"), StartsWith("f.toml:2: "));
}

TEST_F(ConfigTest, EnvironmentNamesItsVariable) {
  EXPECT_EQ(use_environment({"BE_ENGINE_GRANTS=no"}).message(),
            "environment BE_ENGINE_GRANTS: engine.grants: 'no' is no whole number from 0 on");
  EXPECT_EQ(use_environment({"BE_ENGIN_GRANTS=1"}).message(),
            "environment: unknown key 'BE_ENGIN_GRANTS' (did you mean 'BE_ENGINE_GRANTS'?)");
  EXPECT_TRUE(use_environment({"BE_RPC_QUARANTINE_WINDOW=2min", "BEER=1", "X"}).ok());
  EXPECT_EQ(quarantine_, 2min);
}

TEST_F(ConfigTest, VariablesOfOthersAreAllowedByName) {
  EXPECT_FALSE(use_environment({"BE_CACHE=/tmp"}).ok());
  config_.allow_environment("BE_CACHE");
  EXPECT_TRUE(use_environment({"BE_CACHE=/tmp"}).ok());
}

TEST_F(ConfigTest, LogLevelIsAKey) {
  ASSERT_TRUE(use_environment({"BE_LOG=off"}).ok());
  testing::internal::CaptureStderr();
  log_error("not seen");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  EXPECT_THAT(config_.set("log", "loud").message(), HasSubstr("log: 'loud' must be one of debug"));
}

TEST_F(ConfigTest, DumpSaysEveryValueWithItsSourceAndHidesSecrets) {
  ASSERT_TRUE(config_.use_text("secret = 'hush'\n[engine]\ngrants = 8", "f.toml").ok());
  ASSERT_TRUE(config_.set("rpc.request_timeout", "40ms", "--set").ok());
  const std::string text = config_.dump();
  EXPECT_THAT(text, AllOf(HasSubstr("grants = 8  # f.toml:3\n"),
                          HasSubstr("request_timeout = \"40ms\"  # --set\n"),
                          HasSubstr("eager_bytes = \"4KiB\"  # default\n"),
                          HasSubstr("[rpc.quarantine]\nwindow = \"5min\"  # default\n"),
                          HasSubstr("# secret is set"), Not(HasSubstr("hush"))));
}

TEST_F(ConfigTest, DumpIsReadBackToTheSameValues) {
  name_ = "tab\t\"quoted\" \\ back";
  grants_ = 99;
  relaxed_ = true;
  const std::string text = config_.dump();
  name_.clear();
  grants_ = 1;
  relaxed_ = false;
  const Status status = config_.use_text(text, "dump");
  ASSERT_TRUE(status.ok()) << status.to_string() << "\n" << text;
  EXPECT_EQ(name_, "tab\t\"quoted\" \\ back");
  EXPECT_EQ(grants_, 99u);
  EXPECT_TRUE(relaxed_);
}

TEST_F(ConfigTest, DocumentationHasOneRowForEachKey) {
  const std::string text = config_.document();
  EXPECT_THAT(text, HasSubstr("| `engine.grants` | integer, between 1 and 4096 | `16` | "
                              "`BE_ENGINE_GRANTS` | open grants |\n"));
  EXPECT_THAT(text, HasSubstr("| `engine.cap_bytes` | bytes | `0B` |"));
  EXPECT_THAT(text, HasSubstr("| `rpc.quarantine.window` | duration, at least 1s | `5min` |"));
  EXPECT_THAT(text, HasSubstr("| `engine.colour` | red, green | `green` |"));
  EXPECT_THAT(text, HasSubstr("| `profile` | name | `default` | `BE_PROFILE` |"));
}

TEST_F(ConfigTest, FileIsReadFromDisk) {
  const std::string path = testing::TempDir() + "be_config_test.toml";
  std::ofstream(path) << "[engine]\ngrants = 8\n";
  EXPECT_TRUE(config_.use_file(path).ok());
  EXPECT_EQ(grants_, 8u);
  std::ofstream(path) << "[engine]\ngrants = 0\n";
  EXPECT_THAT(config_.use_file(path).message(), HasSubstr(path + ":2: engine.grants"));
  std::ofstream(path) << std::string((1 << 20) + 1, '#');
  EXPECT_THAT(config_.use_file(path).message(), HasSubstr("larger than 1MiB"));
  std::remove(path.c_str());
}

TEST_F(ConfigTest, UnreadableFileIsNamed) {
  const Status missing = config_.use_file("/nowhere/x.toml");
  EXPECT_EQ(missing.code(), Code::kNotFound);
  EXPECT_THAT(missing.message(), HasSubstr("'/nowhere/x.toml': ENOENT"));
  const Status directory = config_.use_file("/tmp");
  EXPECT_FALSE(directory.ok());
  EXPECT_THAT(directory.message(), HasSubstr("'/tmp': EISDIR"));
}

}  // namespace
}  // namespace be
