// byteexpress perf: what the path between two hosts can do.
#include <fmt/format.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "apps/commands.h"
#include "apps/end_signals.h"
#include "apps/listen_address.h"
#include "apps/options.h"
#include "apps/output_file.h"
#include "apps/perf_client.h"
#include "apps/perf_flow.h"
#include "apps/perf_report.h"
#include "apps/perf_server.h"
#include "apps/perf_sizes.h"
#include "apps/progress.h"

namespace be::apps {
namespace {

struct ServerCommand {
  std::string listen = "127.0.0.1:0";
  bool once = false;
};

struct ClientCommand {
  PerfPlan plan;
  std::string json;
};

void say(const std::string& line) {
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

Status run_server(const ServerCommand& command, const Settings& settings) {
  const EndSignals end_signals;
  BE_ASSIGN_OR_RETURN(const Address address, resolve_listen_address(command.listen, settings));
  BE_ASSIGN_OR_RETURN(std::unique_ptr<Node> node, Node::create(kernel_world(), settings.node));
  PerfService service(*node, {.say = say, .session_ended = [&command] {
                                if (command.once) ::kill(::getpid(), SIGTERM);  // as a user would
                              }});
  BE_ASSIGN_OR_RETURN(
      std::unique_ptr<Listener> listener,
      node->listen(address, [&service](Socket& socket) { return service.accept(socket); }));
  say("ready " + listener->address().to_string());
  end_signals.wait();
  listener.reset();
  node.reset();  // its sockets' last calls go to the service
  return ok_status();
}

Status run_client(const ClientCommand& command, Settings& settings) {
  EndSignals end_signals;
  BE_ASSIGN_OR_RETURN(OutputFile json, OutputFile::open(command.json));
  Progress progress;
  BE_ASSIGN_OR_RETURN(const PerfResult result,
                      run_perf_client(settings.node, command.plan, end_signals,
                                      [&](double fraction, const std::string& next) {
                                        progress.show(fraction, next);
                                      }));
  progress.clear();
  std::fputs(perf_table(command.plan, settings.node, result).c_str(), stdout);
  const auto figures = perf_json(command.plan, settings.node, result, settings.config().dump());
  return json.commit(figures.dump(2) + "\n");
}

// What the user left open is the test's own.
void complete(PerfPlan& plan) {
  const auto choose = [&](const char* sizes, uint32_t outstanding) {
    if (plan.sizes.empty()) plan.sizes = parse_sizes(sizes).value();
    if (plan.outstanding == 0) plan.outstanding = outstanding;
  };
  switch (plan.test) {
    case PerfTest::kLatency:
      return choose("32..1MiB", 1);
    case PerfTest::kBandwidth:
      return choose("1MiB", 4);
    case PerfTest::kRate:
      return choose("512", 64);
  }
}

constexpr const char* kFooter =
    "Between two hosts (docs/performance.md), with the same secret in both environments:\n"
    "  host A:  BE_TRANSPORT_SECRET=... byteexpress perf server --listen 10.0.0.1:9100\n"
    "  host B:  BE_TRANSPORT_SECRET=... byteexpress perf client 10.0.0.1:9100 --test latency";

constexpr const char* kServerFooter =
    "Prints \"ready ADDRESS\", then a line for each client and for its end. Serves any number of\n"
    "clients, at once too; what is measured, the client decides. Ends on SIGTERM or SIGINT.";

constexpr const char* kClientFooter =
    "latency     time from making a message to its reply, one outstanding; 32 B to 1 MiB\n"
    "bandwidth   bytes a second, four outstanding; 1 MiB\n"
    "rate        messages a second, 64 outstanding; 512 B\n"
    "Every test prints all figures: times, rates, CPU time of both ends. Each thread has one "
    "engine\n"
    "to the server. Engine, memory and transport have their settings (byteexpress config):\n"
    "  byteexpress perf client HOST:PORT --test bandwidth --set engine.fragment_bytes=4KiB\n"
    "Ctrl-C ends with what was measured until then.";

void add_server(CLI::App& perf, Settings& settings, Command& chosen) {
  CLI::App* app = perf.add_subcommand("server", "Answer perf clients");
  const auto command = std::make_shared<ServerCommand>();
  app->footer(kServerFooter);
  app->option_defaults()->always_capture_default();
  app->add_option("--listen", command->listen, "where to listen; port 0 takes any free one")
      ->type_name("HOST:PORT");
  app->add_option("--threads", settings.node.io_threads, "I/O threads, connections in turn")
      ->check(CLI::Range(1, 256));
  app->add_flag("--once", command->once, "end after the first client");
  settings.add_options(*app);
  app->callback([command, &settings, &chosen] {
    chosen = [command, &settings] { return run_server(*command, settings); };
  });
}

void add_test_options(CLI::App& app, PerfPlan& plan) {
  app.add_option_function<std::string>(
         "--test",
         [&plan](const std::string& name) {
           for (const PerfTest test : {PerfTest::kLatency, PerfTest::kBandwidth, PerfTest::kRate}) {
             if (name == perf_test_name(test)) plan.test = test;
           }
         },
         "latency, bandwidth or rate (default: latency)")
      ->check(CLI::IsMember({"latency", "bandwidth", "rate"}))
      ->type_name("NAME");
  app.add_option_function<std::string>(
         "--sizes",
         [&plan](const std::string& text) {
           Result<std::vector<uint32_t>> sizes = parse_sizes(text);
           if (!sizes.ok()) throw CLI::ValidationError("--sizes", sizes.status().message());
           plan.sizes = *std::move(sizes);
         },
         "message sizes, as 32,1KiB or 32..1MiB (doubling); default: the test's")
      ->type_name("SIZES");
  app.add_option("--sockets", plan.sockets, "sockets of each thread, over one engine")
      ->check(CLI::Range(1, 1024));
  plan.outstanding = 0;
  app.add_option("--outstanding", plan.outstanding,
                 "messages without a reply on each socket; default: the test's")
      ->check(CLI::Range(1u, PerfFlow::kMaxOutstanding))
      ->default_str("");
  app.add_option("--background", plan.background, "large flows beside, over the same engine")
      ->check(CLI::Range(0, 1024));
  app.add_option_function<std::string>(
         "--background-bytes",
         [&plan](const std::string& text) {
           const Result<std::vector<uint32_t>> sizes = parse_sizes(text);
           if (!sizes.ok()) {
             throw CLI::ValidationError("--background-bytes", sizes.status().message());
           }
           plan.background_bytes = sizes->front();
         },
         "size of their messages (default: 1MiB)")
      ->type_name("SIZE");
  add_duration_option(app, "--duration", plan.duration, "measured time of one size");
  add_duration_option(app, "--warmup", plan.warmup, "before each measurement");
  app.add_option("--repetitions", plan.repetitions, "of the sweep; the table has the medians")
      ->check(CLI::Range(1, 1000));
  app.add_option("--reply-bytes", plan.reply_bytes, "size of replies")
      ->check(CLI::Range(1u, kMaxPerfReplyBytes));
  app.add_flag("--touch,!--no-touch", plan.touch,
               "write each payload before it is sent, read it where it comes (default: --touch)");
}

void add_client(CLI::App& perf, Settings& settings, Command& chosen) {
  CLI::App* app = perf.add_subcommand("client", "Measure against a perf server");
  const auto command = std::make_shared<ClientCommand>();
  app->footer(kClientFooter);
  app->option_defaults()->always_capture_default();
  app->add_option("server", command->plan.server, "address of `byteexpress perf server`")
      ->required()
      ->always_capture_default(false)
      ->type_name("HOST:PORT");
  add_test_options(*app, command->plan);
  app->add_option("--threads", settings.node.io_threads, "I/O threads, each with its own engine")
      ->check(CLI::Range(1, 256));
  app->add_option("--json", command->json, "write all figures")
      ->always_capture_default(false)
      ->type_name("FILE");
  settings.add_options(*app);
  app->callback([command, &settings, &chosen] {
    complete(command->plan);
    chosen = [command, &settings] { return run_client(*command, settings); };
  });
}

}  // namespace

void add_perf(CLI::App& program, Settings& settings, Command& chosen) {
  CLI::App* app =
      program.add_subcommand("perf", "Measure latency, bandwidth and message rate of the path");
  app->footer(kFooter);
  app->require_subcommand(1);
  add_server(*app, settings, chosen);
  add_client(*app, settings, chosen);
}

}  // namespace be::apps
