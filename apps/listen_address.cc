#include "apps/listen_address.h"

#include "be/base/world.h"

namespace be::apps {

Result<Address> resolve_listen_address(const std::string& text, const Settings& settings) {
  BE_ASSIGN_OR_RETURN(const Address address, kernel_world().network().resolve(text));
  if (!address.is_loopback() && settings.node.secret.empty()) {
    return error(Code::kPermission,
                 "--listen {}: without a shared secret (transport.secret) only loopback addresses "
                 "are served",
                 text);
  }
  return address;
}

}  // namespace be::apps
