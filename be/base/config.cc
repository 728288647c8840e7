#include "be/base/config.h"

#include <algorithm>
#include <cassert>
#include <cctype>

#include "be/base/log.h"

namespace be {
namespace {

constexpr std::string_view kVariablePrefix = "BE_";

std::string variable_of(std::string_view key) {
  std::string variable(kVariablePrefix);
  for (const char letter : key) {
    variable += letter == '.' ? '_' : static_cast<char>(std::toupper(letter));
  }
  return variable;
}

// How many letters must be changed, added or dropped (Levenshtein), to suggest a known name.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0]++;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t changed = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({changed, row[j] + 1, diagonal + 1});
    }
  }
  return row[b.size()];
}

std::string in_quotes(std::string_view text) {
  std::string quoted = "\"";
  for (const char letter : text) {
    const auto code = static_cast<unsigned char>(letter);
    if (letter == '"' || letter == '\\') {
      quoted += {'\\', letter};
    } else if (code < 0x20 || code == 0x7f) {
      quoted += fmt::format("\\u{:04x}", code);
    } else {
      quoted += letter;
    }
  }
  return quoted + '"';
}

}  // namespace

Config::Config() {
  section("")
      .add("profile", profile_value(), "named set of values: default, or one that is declared")
      .add("log", log_value(), "lowest level of messages on standard error");
}

Config::Section& Config::Section::add(std::string_view key, ConfigValue value,
                                      std::string_view meaning) {
  Key made{.section = name_,
           .name = name_.empty() ? std::string(key) : fmt::format("{}.{}", name_, key),
           .variable = {},
           .meaning = std::string(meaning),
           .value = std::move(value),
           .default_text = {}};
  made.variable = variable_of(made.name);
  made.default_text = made.value.secret ? "" : made.value.show();
  assert(std::none_of(config_.keys_.begin(), config_.keys_.end(),
                      [&](const Key& other) { return other.variable == made.variable; }));
  config_.keys_.push_back(std::move(made));
  return *this;
}

ConfigValue Config::profile_value() {
  ConfigValue value = string_value(&profile_, false);
  value.type = "name";
  value.read = [this](const std::string& name, bool apply) -> Status {
    if (name != "default" && profiles_.count(name) == 0) {
      std::string known = "default";
      for (const auto& [other, unused] : profiles_) known += ", " + other;
      return error(Code::kInvalidArgument, "'{}' must be one of {}", name, known);
    }
    return apply ? choose_profile(name) : Status();
  };
  return value;
}

ConfigValue Config::log_value() {
  std::vector<std::pair<std::string, std::string>> levels;
  for (const char* level : {"debug", "info", "warn", "error", "off"}) {
    levels.emplace_back(level, level);
  }
  ConfigValue value = choice_value(&log_level_, std::move(levels));
  value.read = [check = std::move(value.read)](const std::string& text, bool apply) -> Status {
    BE_RETURN_IF_ERROR(check(text, apply));
    return apply ? set_log_level(text) : Status();
  };
  return value;
}

void Config::add_profile(const std::string& name,
                         std::initializer_list<std::pair<std::string, std::string>> values) {
  auto& profile = profiles_[name];
  profile.insert(profile.end(), values.begin(), values.end());
}

Status Config::choose_profile(const std::string& name) {
  profile_ = name;
  for (Key& key : keys_) {
    if (key.rank != Rank::kProfile) continue;
    key.value.restore();
    key.rank = Rank::kDefault;
    key.source = "default";
  }
  if (name == "default") return {};
  for (const auto& [key, text] : profiles_[name]) {
    assert(key != "profile");
    BE_RETURN_IF_ERROR(assign(key, text, Rank::kProfile, fmt::format("profile {}", name)));
  }
  return {};
}

Config::Key* Config::find(std::string_view name) {
  const auto key = std::find_if(keys_.begin(), keys_.end(),
                                [name](const Key& candidate) { return candidate.name == name; });
  return key == keys_.end() ? nullptr : &*key;
}

Status Config::assign(std::string_view name, const std::string& text, Rank rank,
                      const std::string& source) {
  Key* key = find(name);
  if (key == nullptr) return unknown(name, source, &Key::name);
  const bool apply = rank >= key->rank;
  if (const Status status = key->value.read(text, apply); !status.ok()) {
    return status.with_context(fmt::format("{}: {}", source, name));
  }
  if (apply) {
    key->rank = rank;
    key->source = source;
  }
  return {};
}

Status Config::unknown(std::string_view name, const std::string& source,
                       std::string Key::*names) const {
  const std::string* nearest = nullptr;
  size_t least = 2 + name.size() / 5;  // farther names are no slip of the finger
  for (const Key& key : keys_) {
    const size_t distance = edit_distance(name, key.*names);
    if (distance > least || (nearest != nullptr && distance == least)) continue;
    nearest = &(key.*names);
    least = distance;
  }
  return error(Code::kInvalidArgument, "{}: unknown key '{}'{}", source, name,
               nearest ? fmt::format(" (did you mean '{}'?)", *nearest) : "");
}

Status Config::use_environment(const char* const* environment) {
  for (; *environment != nullptr; ++environment) {
    const std::string_view entry = *environment;
    const size_t equals = entry.find('=');
    if (!entry.starts_with(kVariablePrefix) || equals == std::string_view::npos) continue;
    const std::string variable(entry.substr(0, equals));
    if (std::count(foreign_variables_.begin(), foreign_variables_.end(), variable) != 0) continue;
    const auto key = std::find_if(keys_.begin(), keys_.end(), [&](const Key& candidate) {
      return candidate.variable == variable;
    });
    if (key == keys_.end()) return unknown(variable, "environment", &Key::variable);
    BE_RETURN_IF_ERROR(assign(key->name, std::string(entry.substr(equals + 1)), Rank::kEnvironment,
                              fmt::format("environment {}", variable)));
  }
  return {};
}

Status Config::set(std::string_view key, const std::string& value, const std::string& source) {
  return assign(key, value, Rank::kCode, source);
}

std::string Config::dump() const {
  // Top-level keys first: TOML has no way back out of a section.
  std::vector<std::string> sections = {""};
  for (const Key& key : keys_) {
    if (std::count(sections.begin(), sections.end(), key.section) == 0) {
      sections.push_back(key.section);
    }
  }
  std::string text;
  for (const std::string& section : sections) {
    if (!section.empty()) text += fmt::format("\n[{}]\n", section);
    for (const Key& key : keys_) {
      if (key.section != section) continue;
      const std::string shown = key.value.show();
      const std::string name = section.empty() ? key.name : key.name.substr(section.size() + 1);
      if (key.value.secret) {
        text +=
            fmt::format("# {} is {}  # {}\n", name, shown.empty() ? "empty" : "set", key.source);
      } else {
        text += fmt::format("{} = {}  # {}\n", name, key.value.bare ? shown : in_quotes(shown),
                            key.source);
      }
    }
  }
  return text;
}

std::string Config::document() const {
  std::string text =
      "| key | type | default | environment | meaning |\n| --- | --- | --- | --- | --- |\n";
  for (const Key& key : keys_) {
    text += fmt::format("| `{}` | {} | {} | `{}` | {} |\n", key.name, key.value.type,
                        key.default_text.empty() ? "" : fmt::format("`{}`", key.default_text),
                        key.variable, key.meaning);
  }
  return text;
}

}  // namespace be
