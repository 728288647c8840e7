#include "be/base/units.h"

#include <charconv>
#include <optional>
#include <span>

namespace be {
namespace {

struct Unit {
  std::string_view name;
  uint64_t factor;
};

// From the smallest to the largest; each divides the next.
constexpr Unit kByteUnits[] = {{"B", 1},
                               {"KiB", uint64_t{1} << 10},
                               {"MiB", uint64_t{1} << 20},
                               {"GiB", uint64_t{1} << 30},
                               {"TiB", uint64_t{1} << 40}};
constexpr Unit kTimeUnits[] = {{"ns", 1},
                               {"us", 1'000},
                               {"ms", 1'000'000},
                               {"s", 1'000'000'000},
                               {"min", 60'000'000'000},
                               {"h", 3'600'000'000'000}};
constexpr Unit kRateUnits[] = {
    {"bps", 1}, {"Kbps", 1'000}, {"Mbps", 1'000'000}, {"Gbps", 1'000'000'000}};

// Splits "64KiB" into 64 and "KiB"; nothing if it does not begin with a number that fits.
std::optional<std::pair<uint64_t, std::string_view>> split(std::string_view text) {
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc()) return std::nullopt;
  return std::pair(number, text.substr(static_cast<size_t>(end - text.data())));
}

std::optional<uint64_t> multiply(uint64_t number, std::string_view unit,
                                 std::span<const Unit> units) {
  for (const Unit& candidate : units) {
    if (candidate.name != unit) continue;
    uint64_t product = 0;
    if (__builtin_mul_overflow(number, candidate.factor, &product)) return std::nullopt;
    return product;
  }
  return std::nullopt;
}

std::string format(uint64_t value, std::span<const Unit> units) {
  const Unit* unit = &units.front();
  for (const Unit& candidate : units) {
    if (value != 0 && value % candidate.factor == 0) unit = &candidate;
  }
  return fmt::format("{}{}", value / unit->factor, unit->name);
}

}  // namespace

Result<uint64_t> parse_bytes(std::string_view text) {
  if (const auto parts = split(text)) {
    const std::string_view unit = parts->second.empty() ? "B" : parts->second;
    if (const auto bytes = multiply(parts->first, unit, kByteUnits)) return *bytes;
  }
  return error(Code::kInvalidArgument,
               "'{}' is no size: a whole number with B, KiB, MiB, GiB, TiB or no unit", text);
}

Result<Nanoseconds> parse_duration(std::string_view text) {
  if (text == "0") return Nanoseconds(0);
  if (const auto parts = split(text)) {
    const auto count = multiply(parts->first, parts->second, kTimeUnits);
    if (count && *count <= static_cast<uint64_t>(Nanoseconds::max().count())) {
      return Nanoseconds(static_cast<int64_t>(*count));
    }
  }
  return error(Code::kInvalidArgument,
               "'{}' is no duration: a whole number with ns, us, ms, s, min or h", text);
}

Result<uint64_t> parse_rate(std::string_view text) {
  if (text == "0") return uint64_t{0};
  if (const auto parts = split(text)) {
    if (const auto rate = multiply(parts->first, parts->second, kRateUnits)) return *rate;
  }
  return error(Code::kInvalidArgument,
               "'{}' is no rate: a whole number with bps, Kbps, Mbps or Gbps", text);
}

std::string format_bytes(uint64_t bytes) { return format(bytes, kByteUnits); }

std::string format_duration(Nanoseconds duration) {
  if (duration.count() < 0) return fmt::format("{}ns", duration.count());
  return format(static_cast<uint64_t>(duration.count()), kTimeUnits);
}

std::string format_rate(uint64_t bits_per_second) { return format(bits_per_second, kRateUnits); }

}  // namespace be
