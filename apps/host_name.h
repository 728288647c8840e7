#pragma once

#include <string>

namespace be::apps {

std::string host_name();  // of this machine; "?" if it does not tell

}  // namespace be::apps
