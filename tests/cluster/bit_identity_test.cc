// One trainer that waits for each push gives the same parameters, bit for bit, over every
// transport.
#include <gtest/gtest.h>

#include "tests/cluster/common/program.h"

namespace be::cluster {
namespace {

class BitIdentity : public testing::Test {
 protected:
  void SetUp() override { write_file(data_, made_up_ratings(5000)); }

  // What one synchronous trainer leaves in three new servers.
  std::string parameters(const std::string& transport, const std::string& seed) {
    const std::vector<Server> servers = start_servers(3, transport);
    const std::string dump = directory_.file("parameters.tsv");
    const Outcome outcome = run_program({"train", "--servers", addresses_of(servers), "--data",
                                         data_, "--sync", "--epochs", "2", "--batch", "64",
                                         "--seed", seed, "--dump", dump, "--transport", transport});
    EXPECT_EQ(outcome.exit_code, 0) << outcome.errors;
    return read_file(dump);
  }

  TemporaryDirectory directory_;
  const std::string data_ = directory_.file("ratings.tsv");
};

TEST_F(BitIdentity, SoftnicAndTcpGiveTheSameParameters) {
  const std::string tcp = parameters("tcp", "1");
  EXPECT_GT(tcp.size(), 1000u);
  EXPECT_EQ(parameters("softnic", "1"), tcp);
}

TEST_F(BitIdentity, AnotherSeedGivesOtherParameters) {
  EXPECT_NE(parameters("tcp", "1"), parameters("tcp", "2"));
}

}  // namespace
}  // namespace be::cluster
