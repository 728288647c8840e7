#include "be/base/status.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <memory>

namespace be {
namespace {

using testing::HasSubstr;

TEST(Status, DefaultIsSuccess) {
  const Status status;
  EXPECT_TRUE(status.ok());
  EXPECT_EQ(status.code(), Code::kOk);
  EXPECT_EQ(status.message(), "");
  EXPECT_EQ(status.to_string(), "ok");
}

TEST(Status, OkCodeWithAMessageIsStillSuccess) { EXPECT_TRUE(Status(Code::kOk, "no").ok()); }

TEST(Status, FailureSaysCodeAndSentence) {
  const Status status = error(Code::kUnavailable, "connect to {}: refused", "10.0.0.1:9000");
  EXPECT_FALSE(status.ok());
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_EQ(status.to_string(), "unavailable: connect to 10.0.0.1:9000: refused");
}

TEST(Status, ContextIsPutBeforeTheMessageAndKeepsTheCode) {
  const Status status = error(Code::kDataLoss, "checksum").with_context("table 'users'");
  EXPECT_EQ(status.code(), Code::kDataLoss);
  EXPECT_EQ(status.message(), "table 'users': checksum");
  EXPECT_TRUE(Status().with_context("anything").ok());
}

TEST(Status, ErrnoIsNamedExplainedAndMappedToACode) {
  const Status status = error_from_errno(ECONNREFUSED, "connect");
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_EQ(status.message(), "connect: ECONNREFUSED (Connection refused)");
  EXPECT_EQ(error_from_errno(EADDRINUSE, "x").code(), Code::kAlreadyExists);
  EXPECT_EQ(error_from_errno(ENOMEM, "x").code(), Code::kResourceExhausted);
  EXPECT_EQ(error_from_errno(EACCES, "x").code(), Code::kPermission);
  EXPECT_EQ(error_from_errno(ENOENT, "x").code(), Code::kNotFound);
}

TEST(Status, UnknownErrnoAndCodeAreSurvived) {
  EXPECT_EQ(errno_name(99999), "unknown errno");
  EXPECT_FALSE(error_from_errno(99999, "x").ok());
  EXPECT_FALSE(error_from_errno(0, "x").ok());
  EXPECT_EQ(code_name(static_cast<Code>(200)), "unknown code");
}

TEST(Result, HoldsAMoveOnlyValueAndGivesItAway) {
  Result<std::unique_ptr<int>> result(std::make_unique<int>(7));
  ASSERT_TRUE(result.ok());
  EXPECT_TRUE(result.status().ok());
  const std::unique_ptr<int> value = std::move(result).value();
  EXPECT_EQ(*value, 7);
}

TEST(Result, MadeFromAnOkStatusIsAnInternalError) {
  const Result<int> result{Status()};
  EXPECT_FALSE(result.ok());
  EXPECT_EQ(result.status().code(), Code::kInternal);
}

Result<int> half_of(int value) {
  if (value % 2 != 0) return error(Code::kInvalidArgument, "{} is odd", value);
  return value / 2;
}

Result<int> quarter_of(int value) {
  BE_ASSIGN_OR_RETURN(const int half, half_of(value));
  BE_ASSIGN_OR_RETURN(const int quarter, half_of(half));
  return quarter;
}

Status check_even(int value) {
  BE_RETURN_IF_ERROR(half_of(value).status());
  return {};
}

TEST(Result, MacrosLeaveTheFunctionWithTheFirstFailure) {
  EXPECT_EQ(quarter_of(12).value(), 3);
  EXPECT_THAT(quarter_of(7).status().message(), HasSubstr("7 is odd"));
  EXPECT_THAT(quarter_of(6).status().message(), HasSubstr("3 is odd"));
  EXPECT_TRUE(check_even(2).ok());
  EXPECT_FALSE(check_even(3).ok());
}

}  // namespace
}  // namespace be
