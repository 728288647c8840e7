#include "be/ps/server_core.h"

namespace be::ps {

Status ServerCore::check_placement(uint32_t view_version, Unaligned<Key> keys) const {
  if (view_version != view.version()) {
    return error(Code::kInvalidArgument, "view {} is not this server's, which is {}", view_version,
                 view.version());
  }
  for (size_t i = 0; i < keys.size(); ++i) {
    const uint32_t owner = view.owner_of(keys[i]);
    if (owner == server_index) continue;
    return error(Code::kInvalidArgument,
                 "key {} lies in virtual shard {}, which in view {} belongs to server {}, not to "
                 "server {} of {}",
                 keys[i], virtual_shard_of(keys[i]), view.version(), owner, server_index,
                 view.servers());
  }
  return ok_status();
}

}  // namespace be::ps
