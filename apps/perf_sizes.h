// "32,1KiB,4KiB..1MiB": the message sizes of a sweep. FROM..TO doubles from one to the other, both
// included. Pure; what cannot be read, or is not 1 byte to 1 GiB, is kInvalidArgument naming it.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "be/base/status.h"

namespace be::apps {

inline constexpr uint64_t kMaxPerfBytes = 1u << 30;

Result<std::vector<uint32_t>> parse_sizes(std::string_view text);

}  // namespace be::apps
