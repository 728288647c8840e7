// byteexpress: parameter servers, trainers and rankers over ByteExpress, and the demonstration
// that runs them all.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>

#include "apps/commands.h"
#include "apps/settings.h"

namespace {

constexpr const char* kDescription =
    "Trains and serves a recommender through a parameter server over RDMA, a software RNIC or TCP.";

constexpr const char* kFooter =
    "A cluster by hand, each line in a terminal of its own:\n"
    "  byteexpress serve --listen 127.0.0.1:9000 --shard 0/2\n"
    "  byteexpress serve --listen 127.0.0.1:9001 --shard 1/2\n"
    "  byteexpress train --servers 127.0.0.1:9000,127.0.0.1:9001 --data ratings.tsv\n"
    "  byteexpress rank  --servers 127.0.0.1:9000,127.0.0.1:9001 --data ratings.tsv\n"
    "or all of it at once, over softnic and over TCP, with a table at the end:\n"
    "  byteexpress demo --data ratings.tsv\n"
    "scripts/movielens makes ratings.tsv of MovieLens; docs/data-format.md says how to bring your "
    "own.\n"
    "Exit codes: 0 done, 1 failed (one line on standard error says why), 2 wrong usage.";

constexpr int kFailed = 1;
constexpr int kUsage = 2;

}  // namespace

int main(int argc, char** argv) {
  CLI::App program(kDescription);
  program.footer(kFooter);
  program.require_subcommand(1);

  be::apps::Settings settings;
  be::apps::Command chosen;
  be::apps::add_serve(program, settings, chosen);
  be::apps::add_train(program, settings, chosen);
  be::apps::add_rank(program, settings, chosen);
  be::apps::add_demo(program, settings, chosen);
  be::apps::add_devices(program, settings, chosen);
  be::apps::add_doctor(program, settings, chosen);
  be::apps::add_sim(program, settings, chosen);
  be::apps::add_perf(program, settings, chosen);
  be::apps::add_config(program, settings, chosen);

  try {
    program.parse(argc, argv);
  } catch (const CLI::ParseError& usage) {
    return program.exit(usage) == 0 ? 0 : kUsage;
  }

  be::Status status = settings.load();
  try {
    if (status.ok()) status = chosen();
  } catch (const std::exception& defect) {  // of a library; ours return a Status
    status = be::Status(be::Code::kInternal, defect.what());
  }
  if (status.ok()) return 0;
  std::fprintf(stderr, "byteexpress %s: %s\n", program.get_subcommands()[0]->get_name().c_str(),
               status.message().c_str());
  return kFailed;
}
