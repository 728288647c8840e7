// What users get wrong: one clear line that names the thing, exit code 1 (wrong usage: 2), and no
// file half-written.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/cluster/common/program.h"

namespace be::cluster {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::MatchesRegex;

class BadInput : public testing::Test {
 protected:
  void SetUp() override { write_file(data_, made_up_ratings(500)); }

  // Exit code 1 and exactly one line, which begins with the command.
  static std::string failure(const std::vector<std::string>& arguments) {
    const Outcome outcome = run_program(arguments);
    EXPECT_EQ(outcome.exit_code, 1) << outcome.errors;
    EXPECT_THAT(outcome.errors, MatchesRegex("byteexpress " + arguments[0] + ": [^\n]+\n"));
    return outcome.errors;
  }

  TemporaryDirectory directory_;
  const std::string data_ = directory_.file("ratings.tsv");
};

TEST_F(BadInput, WrongUsageExitsWithTwo) {
  for (const std::vector<std::string>& arguments : std::vector<std::vector<std::string>>{
           {},
           {"no-such-command"},
           {"train"},
           {"serve", "--shard", "2/2"},
           {"serve", "--transport", "pigeon"},
           {"rank", "--servers", "a:1", "--data", data_, "--requests", "none"},
           {"demo", "--data", data_, "--transports", "softnic,pigeon"}}) {
    EXPECT_EQ(run_program(arguments).exit_code, 2);
  }
}

TEST_F(BadInput, HelpIsNoFailureAndTeaches) {
  for (const char* command : {"serve", "train", "rank", "demo", "devices", "config"}) {
    const Outcome outcome = run_program({command, "--help"});
    EXPECT_EQ(outcome.exit_code, 0);
    EXPECT_GT(outcome.output.size(), 200u) << command;
  }
}

TEST_F(BadInput, APortInUseIsNamed) {
  const Server server = start_server("0/1", "tcp");
  EXPECT_THAT(failure({"serve", "--listen", server.address}),
              AllOf(HasSubstr(server.address), HasSubstr("EADDRINUSE")));
}

TEST_F(BadInput, AnUnknownHostIsNamed) {
  EXPECT_THAT(failure({"train", "--servers", "no-such-host.invalid:9000", "--data", data_}),
              HasSubstr("no-such-host.invalid"));
}

TEST_F(BadInput, AServerThatIsNotThereIsNamed) {
  EXPECT_THAT(failure({"train", "--servers", "127.0.0.1:1", "--data", data_, "--transport", "tcp"}),
              AllOf(HasSubstr("127.0.0.1:1"), HasSubstr("ECONNREFUSED")));
}

TEST_F(BadInput, AnUnreadableFileIsNamed) {
  EXPECT_THAT(failure({"train", "--servers", "127.0.0.1:1", "--data", directory_.file("none")}),
              AllOf(HasSubstr(directory_.file("none")), HasSubstr("ENOENT")));
  EXPECT_THAT(failure({"demo", "--data", directory_.file("none")}),
              HasSubstr(directory_.file("none")));
  EXPECT_THAT(failure({"config", "--config", directory_.file("none.toml")}),
              HasSubstr(directory_.file("none.toml")));
}

TEST_F(BadInput, AMalformedLineIsNamedByFileAndNumber) {
  write_file(data_, made_up_ratings(10) + "1\t2\tgood\t1\t\t\t\n");
  EXPECT_THAT(failure({"train", "--servers", "127.0.0.1:1", "--data", data_}),
              AllOf(HasSubstr(data_ + ":12:"), HasSubstr("'good'")));
}

TEST_F(BadInput, AnUnknownSettingIsNamed) {
  EXPECT_THAT(failure({"config", "--set", "engine.grantz=8"}), HasSubstr("engine.grantz"));
  EXPECT_THAT(failure({"config", "--set", "engine.grants=0"}), HasSubstr("engine.grants"));
}

TEST_F(BadInput, AWrongModelIsNamedWithThoseThereAre) {
  const Server server = start_server("0/1", "tcp");
  ASSERT_EQ(run_program({"train", "--servers", server.address, "--data", data_, "--epochs", "1"})
                .exit_code,
            0);
  EXPECT_THAT(failure({"rank", "--servers", server.address, "--data", data_, "--model", "other"}),
              AllOf(HasSubstr("'other/features'"), HasSubstr("'movielens/features'")));
}

TEST_F(BadInput, AModelOfAnotherDimensionIsNamedWithBoth) {
  const Server server = start_server("0/1", "tcp");
  const std::vector<std::string> train = {"train",    "--servers", server.address, "--data", data_,
                                          "--epochs", "1"};
  ASSERT_EQ(run_program(train).exit_code, 0);
  std::vector<std::string> other = train;
  other.insert(other.end(), {"--factors", "4"});
  EXPECT_THAT(failure(other), AllOf(HasSubstr("dim 9"), HasSubstr("dim 5")));
}

TEST_F(BadInput, ServersInTheWrongOrderAreNamed) {
  const std::vector<Server> servers = start_servers(2, "tcp");
  EXPECT_THAT(failure({"train", "--servers", servers[1].address + "," + servers[0].address,
                       "--data", data_}),
              HasSubstr(servers[1].address + " is server 1 of 2"));
}

TEST_F(BadInput, AMemoryCapThatIsTooSmallForTheJobIsNamed) {
  std::string ratings = made_up_ratings(0);
  for (int i = 1; i <= 500; ++i) ratings += fmt::format("{}\t{}\t4\t1\t\t\t\n", i, i);
  write_file(data_, ratings);
  const Server server = start_server("0/1", "tcp");
  const std::string error =
      failure({"train", "--servers", server.address, "--data", data_, "--transport", "tcp",
               "--batch", "500", "--factors", "1024", "--set", "memory.cap_bytes=1MiB", "--set",
               "memory.block_size_bytes=64KiB"});
  EXPECT_THAT(error, HasSubstr("memory.cap_bytes"));
}

TEST_F(BadInput, OutputsAppearWholeOrNotAtAll) {
  const Server server = start_server("0/1", "tcp");
  const std::string json = directory_.file("out.json");
  EXPECT_THAT(failure({"rank", "--servers", server.address, "--data", data_, "--json", json}),
              HasSubstr("no table"));
  EXPECT_THAT(failure({"train", "--servers", server.address, "--data", data_, "--json",
                       directory_.file("no/such/dir.json")}),
              HasSubstr(directory_.file("no/such/dir.json")));
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(directory_.file(""))) {
    EXPECT_EQ(entry.path().filename(), "ratings.tsv");
    ++files;
  }
  EXPECT_EQ(files, 1);
}

}  // namespace
}  // namespace be::cluster
