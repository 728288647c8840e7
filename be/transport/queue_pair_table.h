// Queue pair number -> engine: a flat hash table with linear probing, at most half full.
//
// Looked up for every receive of an SRQ, changed when engines come and go (then it is made anew).
// Pure; one thread.
#pragma once

#include <bit>
#include <cstdint>
#include <utility>
#include <vector>

namespace be {

class EngineLink;

class QueuePairTable {
 public:
  EngineLink* find(uint32_t number) const {
    for (uint32_t at = place(number);; ++at) {
      const Entry& entry = entries_[at & mask()];
      if (entry.link == nullptr || entry.number == number) return entry.link;
    }
  }

  // A number that the device has given to another queue pair meanwhile is that one's.
  void put(uint32_t number, EngineLink* link) {
    rebuild([&](const Entry& entry) { return entry.number != number && entry.link != link; });
    insert({number, link});
    ++count_;
  }
  void remove(const EngineLink* link) {
    rebuild([&](const Entry& entry) { return entry.link != link; });
  }

 private:
  struct Entry {
    uint32_t number = 0;
    EngineLink* link = nullptr;
  };

  uint32_t mask() const { return static_cast<uint32_t>(entries_.size()) - 1; }
  uint32_t place(uint32_t number) const { return number * 2654435769u >> 8; }

  template <typename Stays>
  void rebuild(Stays stays) {
    const std::vector<Entry> before =
        std::exchange(entries_, std::vector<Entry>(std::bit_ceil(2 * (count_ + 2))));
    count_ = 0;
    for (const Entry& entry : before) {
      if (entry.link == nullptr || !stays(entry)) continue;
      insert(entry);
      ++count_;
    }
  }
  void insert(const Entry& entry) {
    uint32_t at = place(entry.number);
    while (entries_[at & mask()].link != nullptr) ++at;
    entries_[at & mask()] = entry;
  }

  uint32_t count_ = 0;
  std::vector<Entry> entries_ = std::vector<Entry>(4);
};

}  // namespace be
