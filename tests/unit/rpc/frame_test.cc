#include "be/rpc/frame.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

namespace be::rpc {
namespace {

using testing::HasSubstr;

class FrameTest : public testing::Test {
 protected:
  Buffer buffer(std::string_view text) {
    if (text.empty()) return {};
    Buffer made = pool_->allocate_buffer(text.size()).value();
    std::memcpy(made.data(), text.data(), text.size());
    return made;
  }

  Buffer flat(const Message& message) {
    Buffer made = pool_->allocate_buffer(message.bytes()).value();
    uint8_t* out = made.data();
    std::memcpy(out, message.header, message.header_bytes);
    out += message.header_bytes;
    for (size_t i = 0; i < message.count; ++i) {
      std::memcpy(out, message.parts[i].data(), message.parts[i].size());
      out += message.parts[i].size();
    }
    return made;
  }

  static std::string text(const Buffer& buffer) {
    return {reinterpret_cast<const char*>(buffer.data()), buffer.size()};
  }

  static FrameHeader request() {
    FrameHeader header;
    header.type = FrameType::kRequest;
    header.method = 0xabcdef01;
    header.call_id = 0x1122334455667788;
    header.timeout_us = 40000;
    return header;
  }

  static Message framed(Payload payload) {
    Message frame;
    FrameHeader header = request();
    make_frame(frame, header, payload);
    return frame;
  }

  Message failed(uint64_t call_id, const Status& status) {
    Message frame;
    make_error_frame(frame, call_id, status, *pool_, no_memory_text_);
    return frame;
  }

  Status parse_changed(size_t byte, uint8_t value) {
    Buffer frame = flat(framed({buffer("body"), buffer("attachment")}));
    frame.data()[byte] = value;
    FrameHeader header;
    return parse_frame(frame, header);
  }

  std::unique_ptr<RegisteredPool> pool_ = RegisteredPool::create({.cap_bytes = 16 << 20}).value();
  Buffer no_memory_text_;
};

TEST_F(FrameTest, BodyAndAttachmentArriveAsViewsOfOneMessage) {
  Buffer frame = flat(framed({buffer("body"), buffer("attachment")}));
  const uint8_t* const begin = frame.data();
  FrameHeader header;
  ASSERT_TRUE(parse_frame(frame, header).ok());
  EXPECT_EQ(header.method, 0xabcdef01u);
  EXPECT_EQ(header.call_id, 0x1122334455667788u);
  EXPECT_EQ(header.timeout_us, 40000u);
  const Payload payload = split_frame(header, std::move(frame));
  EXPECT_EQ(text(payload.body), "body");
  EXPECT_EQ(text(payload.attachment), "attachment");
  EXPECT_EQ(payload.body.data(), begin + sizeof(FrameHeader));
  EXPECT_EQ(payload.attachment.data(), begin + sizeof(FrameHeader) + 4);
}

TEST_F(FrameTest, EitherPartMayBeMissing) {
  for (const auto& [body, attachment] :
       {std::pair("", ""), std::pair("b", ""), std::pair("", "a")}) {
    Buffer frame = flat(framed({buffer(body), buffer(attachment)}));
    FrameHeader header;
    ASSERT_TRUE(parse_frame(frame, header).ok());
    const Payload payload = split_frame(header, std::move(frame));
    EXPECT_EQ(text(payload.body), body);
    EXPECT_EQ(text(payload.attachment), attachment);
  }
  EXPECT_EQ(pool_->stats().live_bytes, 0u);
}

TEST_F(FrameTest, EveryTruncationIsRefused) {
  Buffer frame = flat(framed({buffer("body"), buffer("attachment")}));
  FrameHeader header;
  for (size_t size = 0; size < frame.size(); ++size) {
    Buffer cut = frame.share(0, size);
    EXPECT_EQ(parse_frame(cut, header).code(), Code::kProtocol) << size << " bytes";
  }
  EXPECT_TRUE(parse_frame(frame, header).ok());
}

TEST_F(FrameTest, BrokenRulesAreNamed) {
  EXPECT_THAT(parse_changed(0, 9).message(), HasSubstr("unknown type 9"));
  EXPECT_THAT(parse_changed(1, 1).message(), HasSubstr("reserved bits"));
  EXPECT_THAT(parse_changed(2, 4).message(), HasSubstr("a request with a status code"));
  EXPECT_THAT(parse_changed(31, 1).message(), HasSubstr("reserved bits"));
  EXPECT_THAT(parse_changed(0, 3).message(), HasSubstr("a cancel with content"));
  // Lengths whose sum would fit only if it were cut to 32 bits.
  EXPECT_THAT(parse_changed(23, 0xff).message(),
              HasSubstr("body of 4278190084 and attachment of 10 bytes in a message of 46 bytes"));
}

TEST_F(FrameTest, ARefusedMessageGivesItsPartsBack) {
  for (const auto& [body, attachment] :
       {std::pair("", ""), std::pair("b", ""), std::pair("", "a"), std::pair("b", "a")}) {
    Message frame = framed({buffer(body), buffer(attachment)});
    Payload back;
    take_back(frame, back);
    EXPECT_EQ(text(back.body), body);
    EXPECT_EQ(text(back.attachment), attachment);
  }
}

TEST_F(FrameTest, AnErrorTravelsWithItsText) {
  const Status sent = error(Code::kNotFound, "no table \"users\"");
  Buffer frame = flat(failed(77, sent));
  FrameHeader header;
  ASSERT_TRUE(parse_frame(frame, header).ok());
  EXPECT_EQ(header.call_id, 77u);
  const Status got = error_of_response(header, split_frame(header, std::move(frame)).body);
  EXPECT_EQ(got.code(), Code::kNotFound);
  EXPECT_EQ(got.message(), sent.message());
}

TEST_F(FrameTest, WithoutMemoryAnErrorCarriesTheTextThatWasMadeBefore) {
  no_memory_text_ = make_no_memory_text(*pool_);
  std::vector<Buffer> hoard;
  for (const size_t size : {size_t{1} << 20, size_t{4096}, size_t{16}}) {
    for (auto more = pool_->allocate_buffer(size); more.ok(); more = pool_->allocate_buffer(size)) {
      hoard.push_back(*std::move(more));
    }
  }
  const Message first = failed(1, error(Code::kNotFound, "a text that is too long for the pool"));
  const Message second = failed(2, error(Code::kInternal, "another"));
  hoard.clear();
  for (const Message* message : {&first, &second}) {
    Buffer frame = flat(*message);
    FrameHeader header;
    ASSERT_TRUE(parse_frame(frame, header).ok());
    const Status got = error_of_response(header, split_frame(header, std::move(frame)).body);
    EXPECT_EQ(got.code(), message == &first ? Code::kNotFound : Code::kInternal);
    EXPECT_THAT(got.message(), HasSubstr("memory.cap_bytes = 16777216"));
  }
}

TEST_F(FrameTest, ErrorTextsAreBoundedAndHarmless) {
  std::string long_text(5000, 'x');
  long_text[3] = '\n';
  Buffer frame = flat(failed(1, Status(Code::kInternal, long_text)));
  FrameHeader header;
  ASSERT_TRUE(parse_frame(frame, header).ok());
  const Status got = error_of_response(header, split_frame(header, std::move(frame)).body);
  EXPECT_EQ(got.message().size(), kMaxErrorBytes);
  EXPECT_EQ(got.message().substr(0, 5), "xxx?x");
}

TEST_F(FrameTest, TimeoutsOnTheWireAreClamped) {
  EXPECT_EQ(timeout_on_wire(40ms), 40000u);
  EXPECT_EQ(timeout_on_wire(-1s), 0u);
  EXPECT_EQ(timeout_on_wire(Nanoseconds::max()), UINT32_MAX);
}

TEST(MethodIdTest, IsTheSameEverywhereAndForEver) {
  EXPECT_EQ(method_id("be.ps.ParameterService.CreateTable"),
            method_id(std::string("be.ps.ParameterService.") + "CreateTable"));
  EXPECT_EQ(method_id(""), 0x02cc5d05u);  // XXH32 of nothing, seed 0: the published test vector
  EXPECT_NE(method_id("a"), method_id("b"));
}

}  // namespace
}  // namespace be::rpc
