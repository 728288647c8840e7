// byteexpress sim: the engine, transport, rpc and parameter server in virtual time, seed by seed.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <thread>

#include "apps/commands.h"
#include "apps/progress.h"
#include "apps/seed_report.h"
#include "apps/seed_workers.h"

namespace be::apps {
namespace {

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

Status explore(const SeedRange& range) {
  const auto start = std::chrono::steady_clock::now();
  Progress progress;
  SeedTotals totals;
  SeedFailure failure;
  BE_RETURN_IF_ERROR(run_seeds(range, totals, failure, [&](const SeedTotals& so_far) {
    progress.show(static_cast<double>(so_far.seeds) / static_cast<double>(range.count),
                  fmt::format("{} of {} seeds", so_far.seeds, range.count));
  }));
  progress.clear();
  if (failure.seed != 0) {
    std::fputs(failure.report.c_str(), stdout);
    std::fflush(stdout);
    return error(Code::kInternal, "seed {} failed, after {} clean ones", failure.seed,
                 totals.seeds);
  }
  std::printf(
      "%lu seeds clean (%lu to %lu): %.1f million happenings, %.0f s of virtual time, in %.1f s; "
      "trace %016lx\n",
      totals.seeds, range.first, range.first + range.count - 1,
      static_cast<double>(totals.happenings) / 1e6, totals.virtual_seconds, seconds_since(start),
      totals.hash);
  return {};
}

Status replay(uint64_t seed) {
  const sim::Outcome outcome = sim::run_seed(seed, [](const sim::Outcome& violated) {
    std::fputs(seed_report(violated).c_str(), stdout);
    std::fflush(stdout);
    _exit(1);
  });
  std::fputs(seed_report(outcome).c_str(), stdout);
  return {};
}

constexpr const char* kFooter =
    "Each seed draws a cluster, its options (extremes included), its work and its faults, and "
    "runs\n"
    "it against the invariants of the engine, a model of every message, and liveness\n"
    "(docs/simulation.md). The first seed that fails is printed with the command that runs it "
    "again.\n"
    "A simulation tests the code; it says nothing about the speed of a network.";

}  // namespace

void add_sim(CLI::App& program, Settings&, Command& chosen) {
  CLI::App* app = program.add_subcommand("sim", "Search for a counterexample, in virtual time");
  app->require_subcommand(1);
  app->footer(kFooter);

  auto range = std::make_shared<SeedRange>();
  range->count = 1000;
  range->jobs = std::max(1u, std::thread::hardware_concurrency());
  CLI::App* search = app->add_subcommand("explore", "Run many seeds");
  search->add_option("--seeds", range->count, "How many")
      ->capture_default_str()
      ->check(CLI::Range(uint64_t{1}, uint64_t{1} << 40));
  search->add_option("--first", range->first, "The first of them")
      ->capture_default_str()
      ->check(CLI::Range(uint64_t{1}, uint64_t{1} << 60));
  search->add_option("--jobs", range->jobs, "Worker processes")
      ->capture_default_str()
      ->check(CLI::Range(1u, 1024u));
  search
      ->add_option("--twice-one-in", range->twice_one_in,
                   "Run so many a second time and compare the traces; 0: none")
      ->capture_default_str();
  search->callback([&chosen, range] { chosen = [range] { return explore(*range); }; });

  auto seed = std::make_shared<uint64_t>(1);
  CLI::App* again = app->add_subcommand("replay", "Run one seed and print how it went");
  again->add_option("seed", *seed, "The seed")
      ->required()
      ->check(CLI::Range(uint64_t{1}, uint64_t{1} << 62));
  again->callback([&chosen, seed] { chosen = [seed] { return replay(*seed); }; });
}

}  // namespace be::apps
