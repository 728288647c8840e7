#include "be/ps/key_plan.h"

#include <array>
#include <bit>

#include "be/base/hash.h"

namespace be::ps {
namespace {

// Each key once, in the order of first sight; `positions` gives for every key where it stands.
std::vector<Key> deduplicate(std::span<const Key> keys, std::vector<uint32_t>& positions) {
  std::vector<Key> unique;
  unique.reserve(keys.size());
  const size_t mask = std::bit_ceil(keys.size() * 2 + 1) - 1;
  std::vector<uint32_t> table(mask + 1);  // position + 1; 0: free
  for (const Key key : keys) {
    size_t at = mix64(key) & mask;
    while (table[at] != 0 && unique[table[at] - 1] != key) at = (at + 1) & mask;
    if (table[at] == 0) {
      unique.push_back(key);
      table[at] = static_cast<uint32_t>(unique.size());
    }
    positions.push_back(table[at] - 1);
  }
  return unique;
}

}  // namespace

KeyPlan::KeyPlan(std::span<const Key> keys, const View& view) {
  positions_.reserve(keys.size());
  const std::vector<Key> seen = deduplicate(keys, positions_);

  // Counting sort by (owner, virtual shard); stable.
  std::array<uint32_t, kVirtualShards> next{};
  for (const Key key : seen) ++next[virtual_shard_of(key)];
  uint32_t first = 0;
  for (uint32_t server = 0; server < view.servers(); ++server) {
    const uint32_t server_first = first;
    for (uint32_t shard = 0; shard < kVirtualShards; ++shard) {
      if (view.owner(shard) != server) continue;
      const uint32_t count = next[shard];
      next[shard] = first;
      first += count;
    }
    if (first > server_first) parts_.push_back({server, server_first, first - server_first});
  }

  unique_.resize(seen.size());
  std::vector<uint32_t> moved(seen.size());
  for (size_t i = 0; i < seen.size(); ++i) {
    moved[i] = next[virtual_shard_of(seen[i])]++;
    unique_[moved[i]] = seen[i];
  }
  for (uint32_t& position : positions_) position = moved[position];
}

}  // namespace be::ps
