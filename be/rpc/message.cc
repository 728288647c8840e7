#include "be/rpc/message.h"

#include <xxhash.h>

namespace be::rpc {

MethodId method_id(std::string_view full_name) {
  return XXH32(full_name.data(), full_name.size(), 0);
}

}  // namespace be::rpc
