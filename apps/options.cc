#include "apps/options.h"

#include <charconv>

#include "be/base/units.h"

namespace be::apps {
namespace {

bool parse_part(const std::string& text, Part& part) {
  const char* const end = text.data() + text.size();
  const auto [slash, bad_index] = std::from_chars(text.data(), end, part.index);
  if (bad_index != std::errc() || slash == end || *slash != '/') return false;
  const auto [stop, bad_count] = std::from_chars(slash + 1, end, part.count);
  return bad_count == std::errc() && stop == end && part.index < part.count;
}

}  // namespace

CLI::Option* add_part_option(CLI::App& command, const std::string& name, Part& part,
                             const std::string& meaning) {
  return command
      .add_option_function<std::string>(
          name,
          [name, &part](const std::string& text) {
            if (!parse_part(text, part)) {
              throw CLI::ValidationError(name, "'" + text + "' is not I/N with 0 <= I < N");
            }
          },
          meaning)
      ->type_name("I/N");
}

CLI::Option* add_duration_option(CLI::App& command, const std::string& name, Nanoseconds& duration,
                                 const std::string& meaning) {
  return command
      .add_option_function<std::string>(
          name,
          [name, &duration](const std::string& text) {
            const Result<Nanoseconds> parsed = parse_duration(text);
            if (!parsed.ok()) throw CLI::ValidationError(name, parsed.status().message());
            duration = *parsed;
          },
          meaning + " (default: " + format_duration(duration) + ")")
      ->type_name("TIME");
}

}  // namespace be::apps
