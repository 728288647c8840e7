#include "be/ps/view.h"

namespace be::ps {

Result<View> View::uniform(uint32_t version, uint32_t servers) {
  if (version == 0) return error(Code::kInvalidArgument, "view version 0: versions begin at 1");
  if (servers == 0 || servers > kVirtualShards) {
    return error(Code::kInvalidArgument,
                 "{} servers: a table has {} virtual shards, so there are 1 .. {} servers", servers,
                 kVirtualShards, kVirtualShards);
  }
  View view;
  view.version_ = version;
  view.servers_ = servers;
  for (uint32_t shard = 0; shard < kVirtualShards; ++shard) {
    view.owner_[shard] = static_cast<uint8_t>(shard % servers);
  }
  return view;
}

}  // namespace be::ps
