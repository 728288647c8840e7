// ServerCore: what the parts of one ParameterServer share: tables, place in the view, bounds and
// counters.
//
// Any thread. The counters are monotonous and read one by one (relaxed): a snapshot may be a
// call or two apart.
#pragma once

#include <atomic>
#include <cstdint>

#include "be/ps/table_set.h"
#include "be/ps/view.h"
#include "be/ps/wire.h"

namespace be::ps {

struct ServerCounters {
  std::atomic<uint64_t> fetches{0};
  std::atomic<uint64_t> fetched_keys{0};
  std::atomic<uint64_t> missing_keys{0};
  std::atomic<uint64_t> pushes{0};
  std::atomic<uint64_t> pushed_keys{0};
  std::atomic<uint64_t> refused{0};
};

struct ServerCore {
  const View view;
  const uint32_t server_index;  // ours in `view`
  const Limits limits;
  TableSet tables;
  ServerCounters counters{};

  // Whether a request of this view, with these keys, is for us: each must be ours.
  Status check_placement(uint32_t view_version, Unaligned<Key> keys) const;
};

}  // namespace be::ps
