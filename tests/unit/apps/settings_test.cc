#include "apps/settings.h"

#include <gtest/gtest.h>

namespace be::apps {
namespace {

TEST(Settings, TheDefaultsAreWithinTheirRangesAndCanBeReadBack) {
  Settings settings;
  const std::string defaults = settings.config().dump();
  const Status status = settings.config().use_text(defaults, "defaults");
  EXPECT_TRUE(status.ok()) << status.to_string();
  EXPECT_TRUE(settings.node.engine.check().ok());
}

TEST(Settings, ThePaperProfileSetsThePapersTimeouts) {
  Settings settings;
  const Status status = settings.config().set("profile", "paper");
  ASSERT_TRUE(status.ok()) << status.to_string();
  EXPECT_EQ(settings.channel.connect_timeout, 10ms);
  EXPECT_EQ(settings.channel.request_timeout, 40ms);
}

}  // namespace
}  // namespace be::apps
