// Bounds-checked little-endian reading and writing of frames (handshake, rpc, ps).
//
//   ByteReader in(frame);
//   const uint32_t id = in.read_u32();
//   const std::string_view name = in.read_string(kMaxNameBytes);
//   if (!in.finished()) return error(Code::kProtocol, ...);
//
// A reader never leaves its span: the first read that does not fit (or exceeds its maximum) sets
// a failure flag that stays; from then on every read gives zero or nothing. So a frame is read
// without branches and judged once, at the end; until then no value may be acted on. A writer
// behaves alike: what does not fit is not written, and ok() says so.
//
// Both are views: the bytes belong to somebody else and must outlive them, and what
// read_bytes and read_string give. Bytes that a peer can change meanwhile (softnic rings) are
// copied before they are read here.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

namespace be {

static_assert(std::endian::native == std::endian::little, "frames are read by memcpy");

class ByteReader {
 public:
  explicit ByteReader(std::span<const uint8_t> bytes) : rest_(bytes) {}

  uint8_t read_u8() { return read<uint8_t>(); }
  uint16_t read_u16() { return read<uint16_t>(); }
  uint32_t read_u32() { return read<uint32_t>(); }
  uint64_t read_u64() { return read<uint64_t>(); }
  int64_t read_i64() { return static_cast<int64_t>(read<uint64_t>()); }
  float read_f32() { return std::bit_cast<float>(read<uint32_t>()); }

  // The next `count` bytes as a view; empty after a failure.
  std::span<const uint8_t> read_bytes(size_t count) {
    if (failed_ || count > rest_.size()) {
      fail();
      return {};
    }
    const auto bytes = rest_.first(count);
    rest_ = rest_.subspan(count);
    return bytes;
  }

  // Fills `out`; zeroes it after a failure.
  void read_into(std::span<uint8_t> out) {
    const auto bytes = read_bytes(out.size());
    if (failed_) {
      std::fill(out.begin(), out.end(), uint8_t{0});
    } else {
      std::copy(bytes.begin(), bytes.end(), out.begin());
    }
  }

  // A u32 length, at most `max`, and that many bytes: the form of ByteWriter::write_string.
  std::string_view read_string(size_t max) {
    const uint32_t length = read_u32();
    if (length > max) fail();
    const auto bytes = read_bytes(length);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

  void skip(size_t count) { read_bytes(count); }

  // For rules of the frame that the caller checks ("count <= kMaxKeys"): fails like a bad read.
  void fail() {
    failed_ = true;
    rest_ = {};
  }

  bool ok() const { return !failed_; }
  bool finished() const { return !failed_ && rest_.empty(); }  // read well, and nothing is left
  size_t remaining() const { return rest_.size(); }
  std::span<const uint8_t> rest() const { return rest_; }

 private:
  template <typename T>
  T read() {
    T value = 0;
    if (sizeof(T) > rest_.size()) {
      fail();
      return value;
    }
    std::memcpy(&value, rest_.data(), sizeof(T));
    rest_ = rest_.subspan(sizeof(T));
    return value;
  }

  std::span<const uint8_t> rest_;
  bool failed_ = false;
};

class ByteWriter {
 public:
  explicit ByteWriter(std::span<uint8_t> space) : space_(space) {}

  void write_u8(uint8_t value) { write(value); }
  void write_u16(uint16_t value) { write(value); }
  void write_u32(uint32_t value) { write(value); }
  void write_u64(uint64_t value) { write(value); }
  void write_i64(int64_t value) { write(static_cast<uint64_t>(value)); }
  void write_f32(float value) { write(std::bit_cast<uint32_t>(value)); }

  void write_bytes(std::span<const uint8_t> bytes) {
    const auto out = reserve(bytes.size());
    if (!out.empty()) std::memcpy(out.data(), bytes.data(), bytes.size());
  }

  void write_string(std::string_view text) {
    write_u32(static_cast<uint32_t>(text.size()));
    write_bytes({reinterpret_cast<const uint8_t*>(text.data()), text.size()});
  }

  // The next `count` bytes, to be filled by the caller; empty if they do not fit.
  std::span<uint8_t> reserve(size_t count) {
    if (failed_ || count > space_.size() - size_) {
      failed_ = true;
      return {};
    }
    const auto out = space_.subspan(size_, count);
    size_ += count;
    return out;
  }

  bool ok() const { return !failed_; }
  size_t size() const { return size_; }  // bytes written so far
  std::span<const uint8_t> written() const { return space_.first(size_); }

 private:
  template <typename T>
  void write(T value) {
    const auto out = reserve(sizeof(T));
    if (!out.empty()) std::memcpy(out.data(), &value, sizeof(T));
  }

  std::span<uint8_t> space_;
  size_t size_ = 0;
  bool failed_ = false;
};

}  // namespace be
