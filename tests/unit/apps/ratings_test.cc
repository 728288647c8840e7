#include "apps/ratings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace be::apps {
namespace {

using testing::HasSubstr;

const std::string kHeader = "user\tmovie\trating\ttimestamp\tyear\tgenres\ttitle\n";

std::string failure_of(const std::string& text) {
  const auto ratings = Ratings::parse(text, "file.tsv");
  return ratings.ok() ? "none" : ratings.status().message();
}

TEST(Ratings, EachLineBecomesTheKeysOfItsFeaturesAndALabel) {
  const auto ratings = Ratings::parse(kHeader +
                                          "1\t31\t2.5\t1260759144\t1995\tDrama\tDangerous Minds\n"
                                          "2\t31\t4\t1260759144\t1995\tDrama\tDangerous Minds\n"
                                          "2\t1029\t5\t1260759179\t\tAnimation|Drama\tDumbo\n",
                                      "file.tsv");
  ASSERT_TRUE(ratings.ok()) << ratings.status().to_string();
  ASSERT_EQ(ratings->size(), 3u);
  EXPECT_FALSE(ratings->liked(0));
  EXPECT_TRUE(ratings->liked(1));
  EXPECT_EQ(ratings->keys(0).size(), 5u);  // bias, user, movie, year, genre
  EXPECT_EQ(ratings->keys(2).size(), 5u);  // bias, user, movie, two genres
  EXPECT_EQ(ratings->keys(0)[0], kBiasKey);
  EXPECT_EQ(ratings->keys(1)[0], kBiasKey);
  EXPECT_NE(ratings->keys(0)[1], ratings->keys(1)[1]);  // users
  EXPECT_EQ(ratings->keys(0)[2], ratings->keys(1)[2]);  // movie
  EXPECT_EQ(ratings->keys(0)[4], ratings->keys(2)[4]);  // Drama
  EXPECT_EQ(ratings->users().size(), 2u);
  ASSERT_EQ(ratings->movies().size(), 2u);
  EXPECT_EQ(ratings->movies()[1].title, "Dumbo");
  EXPECT_EQ(ratings->all_keys().size(), 8u);  // bias, 2 users, 2 movies, 1 year, 2 genres
}

TEST(Ratings, EqualNumbersOfDifferentFieldsAreDifferentFeatures) {
  const auto ratings = Ratings::parse(kHeader + "7\t7\t3\t1\t7\t\t\n", "file.tsv");
  ASSERT_TRUE(ratings.ok());
  EXPECT_EQ(ratings->all_keys().size(), 4u);
}

TEST(Ratings, WhatIsWrongIsNamedWithFileAndLine) {
  const std::string good = "1\t31\t2.5\t1260759144\t1995\tDrama\tDangerous Minds\n";
  EXPECT_THAT(failure_of("user,movie\n"), HasSubstr("file.tsv:1: the first line must be"));
  EXPECT_THAT(failure_of(""), HasSubstr("file.tsv: no ratings"));
  EXPECT_THAT(failure_of(kHeader), HasSubstr("file.tsv: no ratings"));
  EXPECT_THAT(failure_of(kHeader + good + "1\t31\t2.5\n"), HasSubstr("file.tsv:3: 3 fields"));
  EXPECT_THAT(failure_of(kHeader + "x\t31\t2.5\t1\t1995\t\t\n"), HasSubstr("file.tsv:2: user 'x'"));
  EXPECT_THAT(failure_of(kHeader + "1\t-3\t2.5\t1\t1995\t\t\n"), HasSubstr("movie '-3'"));
  EXPECT_THAT(failure_of(kHeader + "1\t3\tgood\t1\t1995\t\t\n"), HasSubstr("rating 'good'"));
  EXPECT_THAT(failure_of(kHeader + "1\t3\tnan\t1\t1995\t\t\n"), HasSubstr("rating 'nan'"));
  EXPECT_THAT(failure_of(kHeader + "1\t3\t2\t\t1995\t\t\n"), HasSubstr("timestamp ''"));
  EXPECT_THAT(failure_of(kHeader + "1\t3\t2\t1\t19x\t\t\n"), HasSubstr("year '19x'"));
  EXPECT_THAT(failure_of(kHeader + "1\t3\t2\t1\t1995\tDrama||War\t\n"), HasSubstr("empty genre"));
  EXPECT_THAT(failure_of(kHeader + good + "\n"), HasSubstr("file.tsv:3: 1 fields"));
}

TEST(Ratings, AFileThatCannotBeReadIsNamed) {
  EXPECT_THAT(Ratings::load("/no/such/file").status().message(), HasSubstr("/no/such/file"));
  EXPECT_THAT(Ratings::load("/tmp").status().message(), HasSubstr("EISDIR"));
}

TEST(Ratings, AboutATenthIsHeldOutAndTheSplitDependsOnTheSeed) {
  std::string text = kHeader;
  for (int i = 1; i <= 5000; ++i) text += std::to_string(i) + "\t1\t3\t1\t\t\t\n";
  const auto ratings = Ratings::parse(text, "file.tsv");
  ASSERT_TRUE(ratings.ok());
  const auto held = ratings->examples(true, 1);
  EXPECT_NEAR(static_cast<double>(held.size()), 500, 75);
  EXPECT_EQ(held.size() + ratings->examples(false, 1).size(), 5000u);
  EXPECT_NE(held, ratings->examples(true, 2));
}

}  // namespace
}  // namespace be::apps
