// The shadow model of message sockets: what was said on each socket of a seed, and whether it
// arrived as it must.
//
//   message of side s, number i:  4 bytes of i | a pattern of (conversation, s, i)
//   message 0 of the connecting side:  also says which conversation this is
//
// Rules, checked as things happen and when a conversation is over:
//   - what is delivered was sent, byte for byte, once, in the order in which it was sent;
//   - each accepted message has exactly one end (on_sent), each socket exactly one (on_closed);
//   - a message that was skipped had failed at its sender before a later one was delivered;
//   - between two healthy processes nothing fails: all that was sent before the sender closed has
//     been delivered, unless the receiver closed first.
//
// Pure: no sockets. Any of it that does not hold becomes a violation of the simulation.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "be/base/status.h"
#include "be/sim/simulation.h"

namespace be::sim {

inline constexpr uint32_t kGreetingBytes = 16;

enum Side : uint8_t { kConnecting = 0, kAccepting = 1 };

class Conversation {
 public:
  Conversation(Simulation& simulation, uint32_t number, bool refusals_allowed)
      : simulation_(simulation), number_(number), refusals_allowed_(refusals_allowed) {}

  uint32_t number() const { return number_; }

  // --- What the sender does.
  void write(Side side, uint32_t index, std::span<uint8_t> message) const;
  void accepted(Side side, uint32_t index);  // by send(), in order
  void sent(Side side, uint32_t index, const Status& status);
  void closing(Side side) { sides_[side].closing = true; }

  // --- What the receiver sees. `side` is the sender's.
  void delivered(Side side, std::span<const uint8_t> message);
  bool intact(Side side, std::span<const uint8_t> message) const;
  static uint32_t number_in(std::span<const uint8_t> greeting);

  void closed(Side side, const Status& status);
  bool closed(Side side) const { return sides_[side].closes > 0; }
  uint32_t delivered_count(Side side) const { return sides_[side].delivered; }

  void process_ends() { ending_ = true; }  // of one side: it closes everything

  // All of so many messages of each side have ended, and been delivered or failed.
  bool complete(const uint32_t (&messages)[2]) const;

  // When both ends are closed, or their processes dead. `healthy`: nobody may have noticed a fault.
  void check(bool healthy);

 private:
  struct Message {
    uint8_t ends = 0;  // calls of on_sent
    bool delivered = false;
    bool failed = false;
    bool before_closing = false;
  };
  struct OneSide {
    std::vector<Message> messages;  // accepted by send()
    uint32_t next = 0;              // at least this is the next to be delivered
    uint32_t delivered = 0;
    uint32_t ended = 0;
    uint32_t failed = 0;
    uint32_t closes = 0;
    bool closing = false;
    Status close;
  };

  void violate(Side side, std::string what) const;

  Simulation& simulation_;
  const uint32_t number_;
  const bool refusals_allowed_;
  bool ending_ = false;
  OneSide sides_[2];
};

}  // namespace be::sim
