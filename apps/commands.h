// The subcommands of `byteexpress`, one file each.
//
// add_*() declares a subcommand and its options; `chosen` becomes what to run if the user names
// it. Usage errors are CLI11's (exit code 2); a Status that is not ok is printed by main (exit
// code 1).
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

#include "apps/settings.h"
#include "be/base/status.h"

namespace be::apps {

using Command = std::function<Status()>;

void add_serve(CLI::App& program, Settings& settings, Command& chosen);
void add_train(CLI::App& program, Settings& settings, Command& chosen);
void add_rank(CLI::App& program, Settings& settings, Command& chosen);
void add_demo(CLI::App& program, Settings& settings, Command& chosen);
void add_devices(CLI::App& program, Settings& settings, Command& chosen);
void add_doctor(CLI::App& program, Settings& settings, Command& chosen);
void add_sim(CLI::App& program, Settings& settings, Command& chosen);
void add_perf(CLI::App& program, Settings& settings, Command& chosen);
void add_config(CLI::App& program, Settings& settings, Command& chosen);

}  // namespace be::apps
