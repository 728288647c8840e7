// Sizes, times and rates as people write them: "64KiB", "4096"; "10ms", "1s"; "25Gbps".
//
//   bytes     whole number, then nothing, B, KiB, MiB, GiB or TiB (powers of 1024)
//   duration  whole number, then ns, us, ms, s, min or h; 0 may stand alone
//   rate      bits a second: whole number, then bps, Kbps, Mbps or Gbps (powers of 1000); 0 alone
//
// Pure, any thread. What cannot be read or does not fit 64 bits is kInvalidArgument and says
// which units there are. format_* gives the shortest text that parse_* reads back exactly.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "be/base/status.h"
#include "be/base/time.h"

namespace be {

Result<uint64_t> parse_bytes(std::string_view text);
Result<Nanoseconds> parse_duration(std::string_view text);  // never negative
Result<uint64_t> parse_rate(std::string_view text);

std::string format_bytes(uint64_t bytes);
std::string format_duration(Nanoseconds duration);
std::string format_rate(uint64_t bits_per_second);

}  // namespace be
