#include "be/sim/conversation.h"

#include <algorithm>
#include <cstring>

#include "be/base/hash.h"

namespace be::sim {
namespace {

constexpr size_t kIndexBytes = 4;
constexpr size_t kNumberBytes = 4;  // in the greeting, behind the index

bool is_greeting(Side side, uint32_t index) { return side == kConnecting && index == 0; }

size_t pattern_start(Side side, uint32_t index) {
  return is_greeting(side, index) ? kIndexBytes + kNumberBytes : kIndexBytes;
}

// `length` bytes of the pattern, eight at a time.
template <typename Use>
void for_pattern(uint32_t number, Side side, uint32_t index, size_t length, Use use) {
  const uint64_t seed = mix64(uint64_t{number} << 1 | side, index);
  for (size_t at = 0; at < length; at += 8) {
    const uint64_t word = mix64(seed + at);
    use(at, word, std::min<size_t>(8, length - at));
  }
}

}  // namespace

void Conversation::violate(Side side, std::string what) const {
  simulation_.violate(fmt::format("conversation {}, {} side's messages: {}", number_,
                                  side == kConnecting ? "connecting" : "accepting", what));
}

void Conversation::write(Side side, uint32_t index, std::span<uint8_t> message) const {
  std::memcpy(message.data(), &index, kIndexBytes);
  if (is_greeting(side, index)) std::memcpy(message.data() + kIndexBytes, &number_, kNumberBytes);
  const size_t start = pattern_start(side, index);
  for_pattern(number_, side, index, message.size() - start,
              [&](size_t at, uint64_t word, size_t bytes) {
                std::memcpy(message.data() + start + at, &word, bytes);
              });
}

bool Conversation::intact(Side side, std::span<const uint8_t> message) const {
  uint32_t index = 0;
  std::memcpy(&index, message.data(), kIndexBytes);
  const size_t start = pattern_start(side, index);
  bool same = message.size() >= start;
  for_pattern(number_, side, index, same ? message.size() - start : 0,
              [&](size_t at, uint64_t word, size_t bytes) {
                same &= std::memcmp(message.data() + start + at, &word, bytes) == 0;
              });
  return same;
}

uint32_t Conversation::number_in(std::span<const uint8_t> greeting) {
  uint32_t number = UINT32_MAX;
  if (greeting.size() >= kGreetingBytes) {
    std::memcpy(&number, greeting.data() + kIndexBytes, kNumberBytes);
  }
  return number;
}

void Conversation::accepted(Side side, uint32_t index) {
  OneSide& from = sides_[side];
  if (index != from.messages.size()) violate(side, "the model was told out of order");
  from.messages.push_back({.before_closing = !from.closing});
}

void Conversation::sent(Side side, uint32_t index, const Status& status) {
  simulation_.note(Happening::kSent, number_, side, index);
  OneSide& from = sides_[side];
  if (index >= from.messages.size())
    return violate(side, fmt::format("on_sent of unsent {}", index));
  Message& message = from.messages[index];
  if (++message.ends > 1) return violate(side, fmt::format("message {} ended twice", index));
  if (from.closes > 0) violate(side, fmt::format("on_sent of {} after on_closed", index));
  ++from.ended;
  message.failed = !status.ok();
  if (message.failed && !message.delivered) ++from.failed;
  if (message.failed && message.delivered && status.code() == Code::kResourceExhausted) {
    violate(side,
            fmt::format("message {} was delivered, and refused: {}", index, status.to_string()));
  }
  if (status.code() == Code::kClosed && !from.closing && !sides_[1 - side].closing && !ending_) {
    violate(side,
            fmt::format("message {} failed, but nobody has closed: {}", index, status.to_string()));
  }
  if (status.code() == Code::kResourceExhausted && !refusals_allowed_) {
    violate(side, fmt::format("message {} was refused: {}", index, status.to_string()));
  }
}

void Conversation::delivered(Side side, std::span<const uint8_t> message) {
  uint32_t index = 0;
  if (message.size() < kIndexBytes) return violate(side, "a message of less than 4 bytes");
  std::memcpy(&index, message.data(), kIndexBytes);
  simulation_.note(Happening::kDeliver, number_, side, index);
  OneSide& from = sides_[side];
  if (index >= from.messages.size()) {
    return violate(side, fmt::format("message {} was delivered and never sent", index));
  }
  if (index < from.next) {
    return violate(side, fmt::format("message {} came when {} was next", index, from.next));
  }
  for (uint32_t skipped = from.next; skipped < index; ++skipped) {
    if (!from.messages[skipped].failed) {
      return violate(side, fmt::format("message {} came before {}", index, skipped));
    }
  }
  if (!intact(side, message)) {
    return violate(side,
                   fmt::format("message {} of {} bytes has other contents", index, message.size()));
  }
  from.messages[index].delivered = true;
  from.next = index + 1;
  ++from.delivered;
}

void Conversation::closed(Side side, const Status& status) {
  simulation_.note(Happening::kClosed, number_, side, static_cast<uint64_t>(status.code()));
  OneSide& from = sides_[side];
  if (++from.closes > 1) return violate(side, "on_closed was called twice");
  from.close = status;
  for (size_t i = 0; i < from.messages.size(); ++i) {
    if (from.messages[i].ends == 0) {
      return violate(side, fmt::format("on_closed, and message {} has no end", i));
    }
  }
}

bool Conversation::complete(const uint32_t (&messages)[2]) const {
  for (const Side side : {kConnecting, kAccepting}) {
    const OneSide& from = sides_[side];
    if (from.ended < messages[side] || from.delivered + from.failed < messages[side]) return false;
  }
  return true;
}

void Conversation::check(bool healthy) {
  const auto out_of_memory = [](const OneSide& side) {
    return side.closes > 0 && side.close.code() == Code::kResourceExhausted;
  };
  // A stream cannot skip the message that there is no memory for: it ends.
  const bool ended_for_memory =
      refusals_allowed_ && (out_of_memory(sides_[0]) || out_of_memory(sides_[1]));
  if (!healthy || ended_for_memory) return;
  for (const Side side : {kConnecting, kAccepting}) {
    const OneSide& from = sides_[side];
    const OneSide& to = sides_[1 - side];
    if (from.closes > 0 && from.close.code() != Code::kClosed) {
      violate(side, "closed between healthy processes: " + from.close.to_string());
    }
    if (to.closing || !from.closing) continue;  // the receiver did not wait for the rest
    for (size_t i = 0; i < from.messages.size(); ++i) {
      const Message& message = from.messages[i];
      if (message.before_closing && !message.delivered && !message.failed) {
        violate(side, fmt::format("message {} was sent and not delivered", i));
      }
    }
  }
}

}  // namespace be::sim
