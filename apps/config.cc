// byteexpress config: every setting, its value in effect and where that comes from.
#include <cstdio>
#include <memory>

#include "apps/commands.h"

namespace be::apps {
namespace {

constexpr const char* kFooter =
    "Settings come, the later ones winning, from their defaults, a profile (--set profile=paper),\n"
    "a TOML file (--config), the environment (BE_ENGINE_GRANTS=8) and the command line (--set\n"
    "engine.grants=8). What is printed can be read back with --config.";

}  // namespace

void add_config(CLI::App& program, Settings& settings, Command& chosen) {
  CLI::App* app = program.add_subcommand("config", "Print the configuration in effect");
  const auto documents = std::make_shared<bool>(false);
  app->footer(kFooter);
  app->add_flag("--document", *documents, "print a table of all keys instead");
  settings.add_options(*app);
  app->callback([documents, &settings, &chosen] {
    chosen = [documents, &settings] {
      const Config& config = settings.config();
      std::fputs((*documents ? config.document() : config.dump()).c_str(), stdout);
      return ok_status();
    };
  });
}

}  // namespace be::apps
