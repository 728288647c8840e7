// The types of configuration values: how one is read from text into a field, and shown.
//
// Used by config.h alone, which says what a user sees. Reading fails with kInvalidArgument and a
// reason that quotes the text ("'0' must be between 1 and 4096"); the caller adds source and key.
#pragma once

#include <charconv>
#include <concepts>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "be/base/status.h"
#include "be/base/time.h"
#include "be/base/units.h"

namespace be {

// Inclusive. With `or_zero`, 0 is allowed besides and means what the key says of it ("off").
template <typename T>
struct Range {
  T min = smallest();
  T max = largest();
  bool or_zero = false;

  bool contains(T value) const {
    return (or_zero && value == T{}) || (min <= value && value <= max);
  }

 private:
  static constexpr T smallest() {
    if constexpr (std::integral<T>) return std::numeric_limits<T>::min();
    return T{};
  }
  static constexpr T largest() {
    if constexpr (std::integral<T>) return std::numeric_limits<T>::max();
    if constexpr (!std::integral<T>) return T::max();
  }
};

// One value behind a key; closures over the field that it is bound to.
struct ConfigValue {
  std::string type;  // for the documentation
  // Checks the text and, if `apply`, sets the field.
  std::function<Status(const std::string& text, bool apply)> read;
  std::function<std::string()> show;  // the field as a text that read() takes
  std::function<void()> restore;      // the field as it was when it was bound
  bool bare = false;                  // written in TOML without quotes
  bool secret = false;                // never shown, only whether it is set
};

namespace config_internal {

template <typename T>
std::string range_text(const Range<T>& range, const std::function<std::string(T)>& show) {
  const char* zero = range.or_zero ? "0 or " : "";
  if (range.max == Range<T>().max) return fmt::format("{}at least {}", zero, show(range.min));
  return fmt::format("{}between {} and {}", zero, show(range.min), show(range.max));
}

// A value of type T with a range, given how to read and show a T.
template <typename T>
ConfigValue ranged_value(std::string type, T* field, Range<T> range,
                         std::function<Result<T>(const std::string&)> parse,
                         std::function<std::string(T)> show) {
  ConfigValue value;
  const bool unlimited = range.min == Range<T>().min && range.max == Range<T>().max;
  value.type = unlimited ? type : fmt::format("{}, {}", type, range_text(range, show));
  value.read = [=](const std::string& text, bool apply) -> Status {
    BE_ASSIGN_OR_RETURN(const T parsed, parse(text));
    if (!range.contains(parsed)) {
      return error(Code::kInvalidArgument, "'{}' must be {}", text, range_text(range, show));
    }
    if (apply) *field = parsed;
    return {};
  };
  value.show = [=] { return show(*field); };
  value.restore = [field, initial = *field] { *field = initial; };
  return value;
}

}  // namespace config_internal

template <std::integral T>
ConfigValue integer_value(T* field, Range<T> range) {
  const auto show = [](T shown) { return std::to_string(shown); };
  ConfigValue value = config_internal::ranged_value<T>(
      "integer", field, range,
      [=](const std::string& text) -> Result<T> {
        T parsed{};
        const char* const end = text.data() + text.size();
        const auto [stop, failure] = std::from_chars(text.data(), end, parsed);
        if (failure == std::errc::result_out_of_range) {
          return error(Code::kInvalidArgument, "'{}' is too large", text);
        }
        if (failure != std::errc() || stop != end) {
          return error(Code::kInvalidArgument, "'{}' is no {}", text,
                       std::unsigned_integral<T> ? "whole number from 0 on" : "whole number");
        }
        return parsed;
      },
      show);
  value.bare = true;
  return value;
}

template <std::unsigned_integral T>
ConfigValue bytes_value(T* field, Range<T> range) {
  const auto show = [](T shown) { return format_bytes(shown); };
  return config_internal::ranged_value<T>(
      "bytes", field, range,
      [=](const std::string& text) -> Result<T> {
        BE_ASSIGN_OR_RETURN(const uint64_t parsed, parse_bytes(text));
        if (parsed > std::numeric_limits<T>::max()) {
          return error(Code::kInvalidArgument, "'{}' is too large", text);
        }
        return static_cast<T>(parsed);
      },
      show);
}

ConfigValue rate_value(uint64_t* field, Range<uint64_t> range);  // bits a second
ConfigValue duration_value(Nanoseconds* field, Range<Nanoseconds> range);
ConfigValue boolean_value(bool* field);
ConfigValue string_value(std::string* field, bool secret);

// `names` lists every value of E that the field may take, the initial one included.
template <typename E>
ConfigValue choice_value(E* field, std::vector<std::pair<std::string, E>> names) {
  std::string list;
  for (const auto& [name, unused] : names) list += (list.empty() ? "" : ", ") + name;
  ConfigValue value;
  value.type = list;
  value.read = [=](const std::string& text, bool apply) -> Status {
    for (const auto& [name, choice] : names) {
      if (name != text) continue;
      if (apply) *field = choice;
      return {};
    }
    return error(Code::kInvalidArgument, "'{}' must be one of {}", text, list);
  };
  value.show = [=]() -> std::string {
    for (const auto& [name, choice] : names) {
      if (choice == *field) return name;
    }
    return "?";
  };
  value.restore = [field, initial = *field] { *field = initial; };
  return value;
}

}  // namespace be
