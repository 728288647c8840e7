#include "be/base/byte_io.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

namespace be {
namespace {

using testing::Each;
using testing::ElementsAre;

TEST(ByteIo, ReaderGivesBackWhatTheWriterWrote) {
  std::array<uint8_t, 64> space{};
  ByteWriter out(space);
  out.write_u8(0xab);
  out.write_u16(0x1234);
  out.write_u32(0xdeadbeef);
  out.write_u64(0x0123456789abcdef);
  out.write_i64(-5);
  out.write_f32(1.5f);
  out.write_string("table");
  out.write_bytes(std::array<uint8_t, 2>{7, 8});
  ASSERT_TRUE(out.ok());

  ByteReader in(out.written());
  EXPECT_EQ(in.read_u8(), 0xab);
  EXPECT_EQ(in.read_u16(), 0x1234);
  EXPECT_EQ(in.read_u32(), 0xdeadbeef);
  EXPECT_EQ(in.read_u64(), 0x0123456789abcdef);
  EXPECT_EQ(in.read_i64(), -5);
  EXPECT_EQ(in.read_f32(), 1.5f);
  EXPECT_EQ(in.read_string(5), "table");
  EXPECT_FALSE(in.finished());
  EXPECT_THAT(in.read_bytes(2), ElementsAre(7, 8));
  EXPECT_TRUE(in.finished());
}

TEST(ByteIo, NumbersAreLittleEndian) {
  std::array<uint8_t, 4> space{};
  ByteWriter out(space);
  out.write_u32(0x01020304);
  EXPECT_THAT(space, ElementsAre(4, 3, 2, 1));
}

TEST(ByteReader, FirstReadThatDoesNotFitFailsAllLaterOnes) {
  const std::array<uint8_t, 3> frame{1, 2, 3};
  ByteReader in(frame);
  EXPECT_EQ(in.read_u32(), 0u);
  EXPECT_FALSE(in.ok());
  EXPECT_EQ(in.read_u8(), 0);  // one byte would have fitted
  EXPECT_TRUE(in.read_bytes(0).empty());
  EXPECT_FALSE(in.ok());
  EXPECT_FALSE(in.finished());
  EXPECT_EQ(in.remaining(), 0u);
}

TEST(ByteReader, EveryTruncationOfAFrameIsNoticed) {
  std::array<uint8_t, 32> space{};
  ByteWriter out(space);
  out.write_u16(1);
  out.write_string("name");
  out.write_u64(2);
  for (size_t length = 0; length < out.size(); ++length) {
    ByteReader in(out.written().first(length));
    in.read_u16();
    in.read_string(16);
    in.read_u64();
    EXPECT_FALSE(in.ok()) << length;
  }
}

TEST(ByteReader, StringAboveItsMaximumFails) {
  std::array<uint8_t, 16> space{};
  ByteWriter out(space);
  out.write_string("12345");
  ByteReader in(out.written());
  EXPECT_EQ(in.read_string(4), "");
  EXPECT_FALSE(in.ok());
}

TEST(ByteReader, LengthNearTheLimitOfItsTypeDoesNotWrap) {
  std::array<uint8_t, 8> space{};
  ByteWriter out(space);
  out.write_u32(UINT32_MAX);
  ByteReader string_reader(space);
  EXPECT_EQ(string_reader.read_string(SIZE_MAX), "");
  EXPECT_FALSE(string_reader.ok());
  ByteReader byte_reader(space);
  EXPECT_TRUE(byte_reader.read_bytes(SIZE_MAX).empty());
  EXPECT_FALSE(byte_reader.ok());
}

TEST(ByteReader, FailureOfTheCallersOwnRuleSticks) {
  const std::array<uint8_t, 4> frame{};
  ByteReader in(frame);
  in.fail();
  EXPECT_EQ(in.remaining(), 0u);
  in.read_u8();
  EXPECT_FALSE(in.ok());
}

TEST(ByteReader, ReadIntoZeroesTheTargetWhenItFails) {
  const std::array<uint8_t, 2> frame{1, 2};
  std::array<uint8_t, 3> target{9, 9, 9};
  ByteReader in(frame);
  in.read_into(target);
  EXPECT_FALSE(in.ok());
  EXPECT_THAT(target, Each(0));
}

TEST(ByteReader, SkipMovesOnAndReadIntoCopies) {
  const std::array<uint8_t, 4> frame{1, 2, 3, 4};
  std::array<uint8_t, 2> target{};
  ByteReader in(frame);
  in.skip(1);
  in.read_into(target);
  EXPECT_THAT(target, ElementsAre(2, 3));
  EXPECT_THAT(in.rest(), ElementsAre(4));
}

TEST(ByteReader, EmptyFrameIsFinished) { EXPECT_TRUE(ByteReader({}).finished()); }

TEST(ByteWriter, WhatDoesNotFitIsNotWrittenAndSticks) {
  std::array<uint8_t, 6> space{};
  ByteWriter out({space.data(), 5});
  out.write_u32(0xffffffff);
  out.write_u16(0xffff);
  EXPECT_FALSE(out.ok());
  out.write_u8(0xff);
  EXPECT_FALSE(out.ok());
  EXPECT_EQ(out.size(), 4u);
  EXPECT_EQ(space[4], 0);
  EXPECT_EQ(space[5], 0);
}

TEST(ByteWriter, ReservedSpaceIsPartOfWhatWasWritten) {
  std::array<uint8_t, 4> space{};
  ByteWriter out(space);
  const auto hole = out.reserve(2);
  out.write_u16(0x0605);
  hole[0] = 1;
  hole[1] = 2;
  EXPECT_THAT(out.written(), ElementsAre(1, 2, 5, 6));
}

}  // namespace
}  // namespace be
