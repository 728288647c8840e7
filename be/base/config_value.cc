#include "be/base/config_value.h"

namespace be {

ConfigValue duration_value(Nanoseconds* field, Range<Nanoseconds> range) {
  return config_internal::ranged_value<Nanoseconds>(
      "duration", field, range, [](const std::string& text) { return parse_duration(text); },
      [](Nanoseconds shown) { return format_duration(shown); });
}

ConfigValue rate_value(uint64_t* field, Range<uint64_t> range) {
  return config_internal::ranged_value<uint64_t>(
      "rate", field, range, [](const std::string& text) { return parse_rate(text); },
      [](uint64_t shown) { return format_rate(shown); });
}

ConfigValue boolean_value(bool* field) {
  ConfigValue value = choice_value<bool>(field, {{"true", true}, {"false", false}});
  value.bare = true;
  return value;
}

ConfigValue string_value(std::string* field, bool secret) {
  ConfigValue value;
  value.type = secret ? "secret string" : "string";
  value.secret = secret;
  value.read = [field](const std::string& text, bool apply) -> Status {
    if (apply) *field = text;
    return {};
  };
  value.show = [field] { return *field; };
  value.restore = [field, initial = *field] { *field = initial; };
  return value;
}

}  // namespace be
