// View: which server owns which virtual shard, with a version.
//
//   key --mix64--> virtual shard (64, fixed for ever) --view--> server index
//
// A key's virtual shard never changes; moving data means a new view with a higher version. Both
// ends name the version they use, so a client with a stale view is told and never served by a
// server that does not own the key.
//
// Plain values, any thread.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "be/base/hash.h"
#include "be/base/status.h"
#include "be/ps/table_spec.h"

namespace be::ps {

inline constexpr uint32_t kVirtualShards = 64;

inline uint32_t virtual_shard_of(Key key) { return static_cast<uint32_t>(mix64(key) >> 58); }
static_assert(uint64_t{1} << (64 - 58) == kVirtualShards);

class View {
 public:
  // Virtual shard v belongs to server v mod servers. 1 <= servers <= kVirtualShards, version > 0.
  static Result<View> uniform(uint32_t version, uint32_t servers);

  uint32_t version() const { return version_; }
  uint32_t servers() const { return servers_; }
  uint32_t owner(uint32_t virtual_shard) const { return owner_[virtual_shard]; }
  uint32_t owner_of(Key key) const { return owner_[virtual_shard_of(key)]; }

  bool operator==(const View&) const = default;

 private:
  View() = default;
  uint32_t version_ = 0;
  uint32_t servers_ = 0;
  std::array<uint8_t, kVirtualShards> owner_{};
};

}  // namespace be::ps
