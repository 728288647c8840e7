// The TOML half of Config.
#include <toml++/toml.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <optional>
#include <sstream>

#include "be/base/config.h"

namespace be {
namespace {

constexpr size_t kMaxFileBytes = 1 << 20;

// The text of a value that Config can read; nothing for tables, arrays, dates and floats.
std::optional<std::string> text_of(const toml::node& node) {
  if (const auto* text = node.as_string()) return text->get();
  if (const auto* number = node.as_integer()) return std::to_string(number->get());
  if (const auto* flag = node.as_boolean()) return flag->get() ? "true" : "false";
  return std::nullopt;
}

std::string type_of(const toml::node& node) {
  std::ostringstream name;
  name << node.type();
  return name.str();
}

struct Entry {
  std::string key;
  const toml::node* node;
};

// Every value below `table` under its full name; a table without values stands for itself, so
// that its name is judged too.
void flatten(const toml::table& table, const std::string& prefix, std::vector<Entry>* entries) {
  for (const auto& [name, node] : table) {
    const std::string key = prefix + std::string(name.str());
    const toml::table* inner = node.as_table();
    if (inner != nullptr && !inner->empty()) {
      flatten(*inner, key + ".", entries);
    } else {
      entries->push_back({key, &node});
    }
  }
}

}  // namespace

Status Config::use_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return error_from_errno(errno, fmt::format("configuration file '{}'", path));
  std::string text(kMaxFileBytes + 1, '\0');
  errno = 0;
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.bad()) return error_from_errno(errno, fmt::format("configuration file '{}'", path));
  text.resize(static_cast<size_t>(file.gcount()));
  if (text.size() > kMaxFileBytes) {
    return error(Code::kInvalidArgument, "configuration file '{}' is larger than {}", path,
                 format_bytes(kMaxFileBytes));
  }
  return use_text(text, path);
}

Status Config::use_text(std::string_view toml, const std::string& source) {
  toml::table root;
  try {
    root = toml::parse(toml);
  } catch (const toml::parse_error& failure) {
    return error(Code::kInvalidArgument, "{}:{}: {}", source, failure.source().begin.line,
                 failure.description());
  }
  std::vector<Entry> entries;
  flatten(root, "", &entries);
  for (const Entry& entry : entries) {
    const std::string place = fmt::format("{}:{}", source, entry.node->source().begin.line);
    const std::optional<std::string> text = text_of(*entry.node);
    if (text) {
      BE_RETURN_IF_ERROR(assign(entry.key, *text, Rank::kFile, place));
    } else if (find(entry.key) == nullptr) {
      const bool section =
          entry.node->is_table() && std::any_of(keys_.begin(), keys_.end(), [&](const Key& key) {
            return key.name.starts_with(entry.key + ".");
          });
      if (!section) return unknown(entry.key, place, &Key::name);
    } else {
      return error(Code::kInvalidArgument, "{}: {}: a TOML {} is no value of it", place, entry.key,
                   type_of(*entry.node));
    }
  }
  return {};
}

}  // namespace be
