// The fuzzer's bytes as a source of choices, taken from the front; at the end all choices are zero.
//
// A target that is more than a parser reads a program of small steps from it, so that every input
// is a plausible story and a mutation of one byte changes one step.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

namespace be::fuzz {

class Input {
 public:
  Input(const uint8_t* data, size_t size) : rest_(data, size) {}

  bool empty() const { return rest_.empty(); }
  size_t left() const { return rest_.size(); }

  uint8_t u8() { return number<uint8_t>(); }
  uint16_t u16() { return number<uint16_t>(); }
  uint32_t u32() { return number<uint32_t>(); }
  uint64_t u64() { return number<uint64_t>(); }
  bool flag() { return (u8() & 1) != 0; }
  uint32_t below(uint32_t bound) { return bound <= 256 ? u8() % bound : u32() % bound; }

  std::span<const uint8_t> bytes(size_t count) {
    const auto taken = rest_.first(std::min(count, rest_.size()));
    rest_ = rest_.subspan(taken.size());
    return taken;
  }
  std::span<const uint8_t> rest() { return bytes(rest_.size()); }
  std::vector<uint8_t> copy(size_t count) {
    const auto taken = bytes(count);
    return {taken.begin(), taken.end()};
  }

 private:
  template <typename T>
  T number() {
    T value = 0;
    const auto taken = bytes(sizeof(T));
    if (!taken.empty()) std::memcpy(&value, taken.data(), taken.size());
    return value;
  }

  std::span<const uint8_t> rest_;
};

}  // namespace be::fuzz
