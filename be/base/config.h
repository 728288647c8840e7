// One typed configuration: every key is declared once, and bound to the field it sets.
//
//   EngineOptions engine;                       // its initial values are the defaults
//   Config config;
//   config.section("engine")
//       .integer("grants", &engine.grants, {1, 4096}, "open grants that one engine gives")
//       .bytes("eager_bytes", &engine.eager_bytes, {64, 1 << 20}, "largest message in one SEND")
//       .duration("keepalive_interval", &engine.keepalive_interval, {1ms, 1h}, "between ticks");
//   config.add_profile("paper", {{"engine.eager_bytes", "4KiB"}});
//
//   BE_RETURN_IF_ERROR(config.use_file("byteexpress.toml"));
//   BE_RETURN_IF_ERROR(config.use_environment(environ));      // BE_ENGINE_GRANTS=8
//   BE_RETURN_IF_ERROR(config.set("engine.grants", "8", "--set"));
//
// Precedence, however the calls are ordered (within one rank the later call wins):
//
//   default < profile < file < environment < code
//
// The key `profile` ("default" or a declared name) and the key `log` (level of log.h) are always
// there. A key that nobody declared, and a value that its type or range refuses, is
// kInvalidArgument naming source (file:line), key and value; the fields are then partly set, and
// the program should end. What several keys must fulfil together is checked by the owner of the
// fields, after the last call.
//
// One thread. The bound fields must outlive the Config.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "be/base/config_value.h"
#include "be/base/status.h"

namespace be {

class Config {
 public:
  Config();
  Config(const Config&) = delete;  // keys are bound to `this`
  Config& operator=(const Config&) = delete;

  // Declares keys of one section ("engine", "rpc.quarantine"; "" for keys at the top). Ranges
  // are inclusive. Returned by value: used at once, as above. A key declared twice is a defect
  // (asserted).
  class Section {
   public:
    Section(Config& config, std::string name) : config_(config), name_(std::move(name)) {}

    template <typename T>  // any integer type
    Section& integer(std::string_view key, T* field, Range<T> range, std::string_view meaning) {
      return add(key, integer_value(field, range), meaning);
    }
    template <typename T>  // any unsigned type
    Section& bytes(std::string_view key, T* field, Range<T> range, std::string_view meaning) {
      return add(key, bytes_value(field, range), meaning);
    }
    Section& duration(std::string_view key, Nanoseconds* field, Range<Nanoseconds> range,
                      std::string_view meaning) {
      return add(key, duration_value(field, range), meaning);
    }
    Section& rate(std::string_view key, uint64_t* bits_per_second, Range<uint64_t> range,
                  std::string_view meaning) {
      return add(key, rate_value(bits_per_second, range), meaning);
    }
    Section& boolean(std::string_view key, bool* field, std::string_view meaning) {
      return add(key, boolean_value(field), meaning);
    }
    Section& string(std::string_view key, std::string* field, std::string_view meaning) {
      return add(key, string_value(field, false), meaning);
    }
    // A string that dump() and errors do not show.
    Section& secret(std::string_view key, std::string* field, std::string_view meaning) {
      return add(key, string_value(field, true), meaning);
    }
    template <typename E>
    Section& choice(std::string_view key, E* field, std::vector<std::pair<std::string, E>> names,
                    std::string_view meaning) {
      return add(key, choice_value(field, std::move(names)), meaning);
    }

   private:
    friend class Config;
    Section& add(std::string_view key, ConfigValue value, std::string_view meaning);

    Config& config_;
    std::string name_;
  };
  Section section(std::string name) { return Section(*this, std::move(name)); }

  // A named set of values; declared again it grows. Checked when it is chosen.
  void add_profile(const std::string& name,
                   std::initializer_list<std::pair<std::string, std::string>> values);

  // TOML. Unreadable: the Code of the errno, naming the file.
  Status use_file(const std::string& path);
  Status use_text(std::string_view toml, const std::string& source);  // as if from that file

  // Variables BE_<SECTION>_<KEY>, e.g. BE_RPC_QUARANTINE_WINDOW for rpc.quarantine.window. Any
  // other that begins with BE_ is an unknown key, unless allow_environment named it before.
  Status use_environment(const char* const* environment);
  void allow_environment(std::string name) { foreign_variables_.push_back(std::move(name)); }

  // `source` is where it comes from, for messages and dump: "--set", "demo".
  Status set(std::string_view key, const std::string& value, const std::string& source = "code");

  // What is in effect, as TOML that use_file reads back, each value with its source.
  std::string dump() const;

  // All keys: a Markdown table of key, type, default, environment variable and meaning.
  std::string document() const;

 private:
  enum class Rank : uint8_t { kDefault, kProfile, kFile, kEnvironment, kCode };

  struct Key {
    std::string section;
    std::string name;      // with its section: "engine.grants"
    std::string variable;  // "BE_ENGINE_GRANTS"
    std::string meaning;
    ConfigValue value;
    std::string default_text;
    Rank rank = Rank::kDefault;
    std::string source = "default";
  };

  Key* find(std::string_view name);
  Status assign(std::string_view name, const std::string& text, Rank rank,
                const std::string& source);
  ConfigValue profile_value();
  ConfigValue log_value();
  Status choose_profile(const std::string& name);
  Status unknown(std::string_view name, const std::string& source, std::string Key::*names) const;

  std::vector<Key> keys_;  // in the order of declaration
  std::map<std::string, std::vector<std::pair<std::string, std::string>>> profiles_;
  std::vector<std::string> foreign_variables_;
  std::string profile_ = "default";
  std::string log_level_ = "warn";
};

}  // namespace be
