#include "be/base/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

namespace be {
namespace {

using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;

class LogTest : public testing::Test {
 protected:
  void TearDown() override { EXPECT_TRUE(set_log_level("warn").ok()); }

  static std::string written_by(const std::function<void()>& action) {
    testing::internal::CaptureStderr();
    action();
    return testing::internal::GetCapturedStderr();
  }
};

TEST_F(LogTest, WritesOneLineWithLevelAndMessage) {
  const std::string text = written_by([] { log_warn("peer {} is {}", 7, "gone"); });
  EXPECT_THAT(text, AllOf(HasSubstr("warn"), EndsWith("peer 7 is gone\n")));
}

TEST_F(LogTest, LevelHidesWhatIsBelowIt) {
  ASSERT_TRUE(set_log_level("error").ok());
  EXPECT_EQ(written_by([] { log_warn("no"); }), "");
  EXPECT_NE(written_by([] { log_error("yes"); }), "");
  ASSERT_TRUE(set_log_level("debug").ok());
  EXPECT_NE(written_by([] { log_debug("yes"); }), "");
  ASSERT_TRUE(set_log_level("off").ok());
  EXPECT_EQ(written_by([] { log_error("no"); }), "");
}

TEST_F(LogTest, UnknownLevelIsAnErrorAndChangesNothing) {
  ASSERT_TRUE(set_log_level("error").ok());
  const Status status = set_log_level("loud");
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("'loud'"));
  EXPECT_EQ(written_by([] { log_warn("no"); }), "");
}

TEST_F(LogTest, BracesInAnArgumentAreNotAFormat) {
  EXPECT_THAT(written_by([] { log_error("{}", "{} {x}"); }), EndsWith("{} {x}\n"));
}

TEST_F(LogTest, LinesGoToTheSinkAndNotToStandardError) {
  std::string line;
  LogLevel level = LogLevel::kDebug;
  set_log_sink([&](LogLevel of, std::string_view text) {
    level = of;
    line = text;
  });
  EXPECT_EQ(written_by([] { log_error("{} broke", 7); }), "");
  set_log_sink({});
  EXPECT_EQ(line, "7 broke");
  EXPECT_EQ(level, LogLevel::kError);
  EXPECT_NE(written_by([] { log_error("again"); }), "");
}

}  // namespace
}  // namespace be
