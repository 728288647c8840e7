// Option types that several subcommands share; a bad text is a usage error of CLI11.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>

#include "be/base/time.h"

namespace be::apps {

// "1/4": the second of four.
struct Part {
  uint32_t index = 0;
  uint32_t count = 1;
};

CLI::Option* add_part_option(CLI::App& command, const std::string& name, Part& part,
                             const std::string& meaning);

// "500ms", "10s".
CLI::Option* add_duration_option(CLI::App& command, const std::string& name, Nanoseconds& duration,
                                 const std::string& meaning);

}  // namespace be::apps
