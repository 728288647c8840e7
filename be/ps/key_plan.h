// KeyPlan: the caller's keys, each once, ordered by the server that owns them.
//
//   caller's keys    k0 k1 k2 k1 k3 ...
//   unique()         | server 0: k2 k0 | server 2: k1 k3 | ...     by server, then virtual shard
//   position(i)      where caller's key i stands in unique():  1 2 0 2 3 ...
//
// So a Fetch asks for every key once and one copy per caller's key gathers the rows; a Push adds
// each of the caller's gradients, in the caller's order, to the sum at its position. The order of
// unique() depends on the keys and the view only: sums and frames repeat bit for bit.
//
// Pure; built once, then read from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "be/ps/table_spec.h"
#include "be/ps/view.h"

namespace be::ps {

class KeyPlan {
 public:
  // keys.size() < 2^32.
  KeyPlan(std::span<const Key> keys, const View& view);

  // One server's keys: unique()[first .. first + count).
  struct Part {
    uint32_t server;
    uint32_t first;
    uint32_t count;
  };
  const std::vector<Part>& parts() const { return parts_; }
  std::span<const Key> unique() const { return unique_; }
  std::span<const Key> keys_of(const Part& part) const {
    return unique().subspan(part.first, part.count);
  }

  size_t size() const { return positions_.size(); }  // of the caller's keys
  uint32_t position(size_t index) const { return positions_[index]; }

 private:
  std::vector<Key> unique_;
  std::vector<uint32_t> positions_;
  std::vector<Part> parts_;
};

}  // namespace be::ps
