// byteexpress sim: the engine, transport, rpc and parameter server in virtual time, seed by seed.
#include <unistd.h>

#include <cstdio>

#include "apps/commands.h"
#include "be/sim/explore.h"

namespace be::apps {
namespace {

void print(const sim::Outcome& outcome) {
  std::printf("seed %lu: %s\n", outcome.seed,
              outcome.violation.empty() ? "clean" : outcome.violation.c_str());
  std::printf("%s", outcome.knobs.c_str());
  for (const std::string& line : outcome.last) std::printf("%s\n", line.c_str());
  std::printf("hash %016lx, %lu happenings, %.6f s of virtual time\n", outcome.hash,
              outcome.happenings, static_cast<double>(outcome.virtual_time.count()) / 1e9);
}

}  // namespace

void add_sim(CLI::App& program, Settings&, Command& chosen) {
  CLI::App* app = program.add_subcommand("sim", "Run the stack in virtual time");
  auto seed = std::make_shared<uint64_t>(1);
  auto count = std::make_shared<uint64_t>(1);
  app->add_option("--first", *seed);
  app->add_option("--seeds", *count);
  app->callback([&chosen, seed, count] {
    chosen = [seed, count]() -> Status {
      for (uint64_t s = *seed; s < *seed + *count; ++s) {
        const sim::Outcome outcome = sim::run_seed(s, [](const sim::Outcome& o) {
          print(o);
          std::fflush(stdout);
          _exit(1);
        });
        if (*count == 1) print(outcome);
      }
      return {};
    };
  });
}

}  // namespace be::apps
