#include "be/ps/wire.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace be::ps {
namespace {

using testing::HasSubstr;

template <typename T>
void put(std::vector<uint8_t>& frame, size_t offset, const std::vector<T>& values) {
  std::copy_n(reinterpret_cast<const uint8_t*>(values.data()), values.size() * sizeof(T),
              frame.begin() + static_cast<ptrdiff_t>(offset));
}

std::vector<uint8_t> fetch_frame(const std::vector<Key>& keys) {
  const FetchLayout layout = fetch_request_layout(keys.size());
  std::vector<uint8_t> frame(layout.bytes);
  begin_fetch_request(frame, 77, 3, static_cast<uint32_t>(keys.size()));
  put(frame, layout.keys, keys);
  return frame;
}

std::vector<uint8_t> push_frame(const std::vector<Key>& keys, uint32_t dim,
                                const std::vector<float>& gradients) {
  const RowsLayout layout = push_request_layout(keys.size(), dim);
  std::vector<uint8_t> frame(layout.bytes);
  begin_push_request(frame, 77, 3, static_cast<uint32_t>(keys.size()), dim);
  put(frame, layout.keys, keys);
  put(frame, layout.values, gradients);
  return frame;
}

TEST(Wire, AFetchRequestIsReadAsItWasWrittenAtAnyAlignment) {
  std::vector<uint8_t> frame = fetch_frame({1, 1ull << 63, 5});
  frame.insert(frame.begin(), 0);
  const auto request = parse_fetch_request(std::span(frame).subspan(1), {});
  ASSERT_TRUE(request.ok()) << request.status().to_string();
  EXPECT_EQ(request->table, 77u);
  EXPECT_EQ(request->view_version, 3u);
  ASSERT_EQ(request->keys.size(), 3u);
  EXPECT_EQ(request->keys[1], 1ull << 63);
}

TEST(Wire, APushRequestIsReadAsItWasWritten) {
  const auto frame = push_frame({8, 9}, 2, {1, 2, 3, 4});
  const auto request = parse_push_request(frame, {});
  ASSERT_TRUE(request.ok()) << request.status().to_string();
  EXPECT_EQ(request->dim, 2u);
  EXPECT_EQ(request->keys[1], 9u);
  EXPECT_EQ(request->gradients.size(), 4u);
  EXPECT_EQ(request->gradients[3], 4.0f);
}

TEST(Wire, AFetchResponseIsReadAsItWasWritten) {
  const RowsLayout layout = fetch_response_layout(9, 2);
  std::vector<uint8_t> frame(layout.bytes);
  begin_fetch_response(frame, 9, 2);
  put(frame, layout.values + 17 * sizeof(float), std::vector<float>{2.5f});
  frame[layout.missing + 1] = 1;
  const auto response = parse_fetch_response(frame, 9, 2);
  ASSERT_TRUE(response.ok()) << response.status().to_string();
  EXPECT_EQ(response->values[17], 2.5f);
  EXPECT_TRUE(response->is_missing(8));
  EXPECT_FALSE(response->is_missing(7));
}

TEST(Wire, EveryTruncationAndEveryExtraByteIsRefused) {
  const auto fetch = fetch_frame({1, 2, 3});
  const auto push = push_frame({8, 9}, 2, {1, 2, 3, 4});
  for (size_t length = 0; length < fetch.size(); ++length) {
    EXPECT_FALSE(parse_fetch_request(std::span(fetch).first(length), {}).ok()) << length;
  }
  for (size_t length = 0; length < push.size(); ++length) {
    EXPECT_FALSE(parse_push_request(std::span(push).first(length), {}).ok()) << length;
  }
  auto longer = fetch;
  longer.push_back(0);
  EXPECT_EQ(parse_fetch_request(longer, {}).status().code(), Code::kProtocol);
  longer = push;
  longer.push_back(0);
  EXPECT_EQ(parse_push_request(longer, {}).status().code(), Code::kProtocol);
}

TEST(Wire, CountsThatOverflowTheFrameAreRefused) {
  std::vector<uint8_t> frame = fetch_frame({1, 2, 3});
  begin_fetch_request(frame, 77, 3, 0x20000001);  // times 8 is 8 in 32 bits
  EXPECT_FALSE(parse_fetch_request(frame, Limits{UINT32_MAX, SIZE_MAX}).ok());
  frame = push_frame({8, 9}, 2, {1, 2, 3, 4});
  begin_push_request(frame, 77, 3, 0x40000000, 4096);
  EXPECT_FALSE(parse_push_request(frame, Limits{UINT32_MAX, SIZE_MAX}).ok());
}

TEST(Wire, LimitsAreNamed) {
  const Limits limits{2, 1000};
  EXPECT_THAT(parse_fetch_request(fetch_frame({}), limits).status().message(),
              HasSubstr("key count 0"));
  EXPECT_THAT(parse_fetch_request(fetch_frame({1, 2, 3}), limits).status().message(),
              HasSubstr("3 keys, more than the 2"));
  EXPECT_THAT(
      parse_push_request(push_frame({1}, 300, std::vector<float>(300)), limits).status().message(),
      HasSubstr("1232 bytes, more than the 1000"));
  EXPECT_THAT(parse_push_request(push_frame({1}, 0, {}), limits).status().message(),
              HasSubstr("dim 0"));
  EXPECT_THAT(parse_push_request(push_frame({}, 1, {}), limits).status().message(),
              HasSubstr("key count 0"));
}

TEST(Wire, ResponsesThatDoNotMatchTheRequestAreRefused) {
  std::vector<uint8_t> frame(fetch_response_layout(3, 2).bytes);
  begin_fetch_response(frame, 3, 2);
  EXPECT_TRUE(parse_fetch_response(frame, 3, 2).ok());
  EXPECT_FALSE(parse_fetch_response(frame, 2, 3).ok());
  EXPECT_FALSE(parse_fetch_response(frame, 4, 2).ok());
  frame.resize(kPushResponseBytes);
  write_push_response(frame, {5, 2});
  EXPECT_TRUE(parse_push_response(frame, 5).ok());
  EXPECT_FALSE(parse_push_response(frame, 4).ok());
  write_push_response(frame, {5, 6});
  EXPECT_FALSE(parse_push_response(frame, 5).ok());
}

}  // namespace
}  // namespace be::ps
