// Where a subcommand may listen: anywhere with a shared secret, else on loopback only.
#pragma once

#include <string>

#include "apps/settings.h"
#include "be/base/status.h"
#include "be/base/stream_network.h"

namespace be::apps {

// `text` is the value of --listen, "host:port". kPermission names the missing secret.
Result<Address> resolve_listen_address(const std::string& text, const Settings& settings);

}  // namespace be::apps
