#include "be/engine/frame.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <random>

namespace be {
namespace {

using Bytes = std::array<uint8_t, 64>;

// The bytes of a frame, with `offset` overwritten by `value` (if offset >= 0).
const char* decode_with(const FrameHeader& header, size_t length, int offset = -1,
                        uint8_t value = 0) {
  Bytes bytes{};
  encode(header, bytes.data());
  if (offset >= 0) bytes[static_cast<size_t>(offset)] = value;
  FrameHeader out;
  return decode(bytes.data(), length, out);
}

FrameHeader data_frame(uint32_t length) {
  FrameHeader header;
  header.type = FrameType::kMessage;
  header.klass = MessageClass::kReply;
  header.cancels_taken = 200;
  header.socket = 0x01020304;
  header.length = length;
  return header;
}

FrameHeader control(FrameType type) {
  FrameHeader header;
  header.type = type;
  header.value = 77;
  if (type == FrameType::kWriteRequest) {
    header.socket = 9;
    header.length = 100000;
  }
  return header;
}

TEST(Frame, DataHeaderHasItsDocumentedBytes) {
  Bytes bytes{};
  encode(data_frame(0x0a0b), bytes.data());
  const uint8_t expected[16] = {1, 1, 200, 0, 4, 3, 2, 1, 0x0b, 0x0a, 0, 0, 0, 0, 0, 0};
  EXPECT_EQ(std::memcmp(bytes.data(), expected, sizeof(expected)), 0);
}

TEST(Frame, EveryFieldSurvivesTheWire) {
  Bytes bytes{};
  encode(data_frame(48), bytes.data());
  FrameHeader out;
  ASSERT_EQ(decode(bytes.data(), 64, out), nullptr);
  EXPECT_EQ(out.type, FrameType::kMessage);
  EXPECT_EQ(out.klass, MessageClass::kReply);
  EXPECT_EQ(out.cancels_taken, 200);
  EXPECT_EQ(out.socket, 0x01020304u);
  EXPECT_EQ(out.length, 48u);

  encode(control(FrameType::kWriteRequest), bytes.data());
  ASSERT_EQ(decode(bytes.data(), 16, out), nullptr);
  EXPECT_EQ(out.socket, 9u);
  EXPECT_EQ(out.length, 100000u);
  EXPECT_EQ(out.value, 77u);
}

TEST(Frame, GrantedMemorySurvivesTheWire) {
  uint8_t bytes[GrantedMemory::kBytes];
  encode(GrantedMemory{0x1234, 0x5678, 0x123456789abcull}, bytes);
  const GrantedMemory out = decode_granted_memory(bytes);
  EXPECT_EQ(out.grant, 0x1234u);
  EXPECT_EQ(out.rkey, 0x5678u);
  EXPECT_EQ(out.address, 0x123456789abcull);
}

TEST(Frame, TheLengthMustBeThatOfTheFrame) {
  EXPECT_EQ(decode_with(data_frame(10), 26), nullptr);
  EXPECT_STREQ(decode_with(data_frame(10), 25), "length");
  EXPECT_STREQ(decode_with(data_frame(10), 27), "length");
  EXPECT_STREQ(decode_with(data_frame(10), 15), "frame length");
  EXPECT_STREQ(decode_with(data_frame(10), 0), "frame length");
  EXPECT_STREQ(decode_with(control(FrameType::kCredits), 17), "frame length");
  EXPECT_STREQ(decode_with(control(FrameType::kWriteResponse), 16), "frame length");
  EXPECT_EQ(decode_with(control(FrameType::kWriteResponse), 32), nullptr);
}

TEST(Frame, UnknownTypesAndFlagsAreNamed) {
  for (const int type : {0, 6, 15, 22, 255}) {
    EXPECT_STREQ(decode_with(data_frame(0), 16, 0, static_cast<uint8_t>(type)), "frame type");
  }
  EXPECT_STREQ(decode_with(data_frame(0), 16, 1, 2), "flags");
}

TEST(Frame, UnusedFieldsMustBeZero) {
  EXPECT_STREQ(decode_with(data_frame(0), 16, 3, 1), "refusal");
  EXPECT_STREQ(decode_with(data_frame(0), 16, 12, 1), "value");
  for (const FrameType type :
       {FrameType::kCredits, FrameType::kGrantCancel, FrameType::kGrantDone}) {
    EXPECT_EQ(decode_with(control(type), 16), nullptr);
    EXPECT_STREQ(decode_with(control(type), 16, 4, 1), "socket");
    EXPECT_STREQ(decode_with(control(type), 16, 8, 1), "length");
    EXPECT_STREQ(decode_with(control(type), 16, 3, 1), "refusal");
  }
}

TEST(Frame, ARefusalIsAKnownCode) {
  EXPECT_EQ(decode_with(control(FrameType::kWriteResponse), 32, 3, 7), nullptr);
  EXPECT_STREQ(decode_with(control(FrameType::kWriteResponse), 32, 3, 15), "refusal");
}

TEST(Frame, AWriteRequestIsForAtLeastOneByte) {
  FrameHeader header = control(FrameType::kWriteRequest);
  header.length = 0;
  EXPECT_STREQ(decode_with(header, 16), "length");
}

TEST(Frame, RandomBytesAreNamedOrWithinBounds) {
  std::mt19937 random(3);
  int accepted = 0;
  for (int i = 0; i < 200000; ++i) {
    Bytes bytes{};
    for (size_t j = 0; j < 16; ++j) {
      bytes[j] = random() % 4 ? 0 : static_cast<uint8_t>(random() % 24);
    }
    bytes[0] = static_cast<uint8_t>(random() % 24);
    const size_t length = random() % 3 ? 16 + random() % 24 : random() % 65;
    FrameHeader out;
    if (decode(bytes.data(), length, out) != nullptr) continue;
    ++accepted;
    if (is_data(out.type)) {
      EXPECT_EQ(out.length + FrameHeader::kBytes, length);
    } else {
      EXPECT_LE(length, 32u);
    }
    EXPECT_LE(static_cast<int>(out.refusal), 14);
  }
  EXPECT_GT(accepted, 100);
}

}  // namespace
}  // namespace be
