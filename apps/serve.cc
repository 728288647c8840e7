// byteexpress serve: one parameter server, until SIGTERM or SIGINT.
#include <fmt/format.h>

#include <cstdio>
#include <memory>

#include "apps/commands.h"
#include "apps/end_signals.h"
#include "apps/listen_address.h"
#include "apps/options.h"
#include "be/ps/parameter_server.h"

namespace be::apps {
namespace {

struct ServeCommand {
  std::string listen = "127.0.0.1:0";
  Part shard;
};

Status serve(const ServeCommand& command, const Settings& settings) {
  const EndSignals end_signals;
  BE_ASSIGN_OR_RETURN(const Address address, resolve_listen_address(command.listen, settings));
  BE_ASSIGN_OR_RETURN(const std::unique_ptr<Node> node,
                      Node::create(kernel_world(), settings.node));
  ps::ParameterServerOptions options = settings.server;
  options.server_index = command.shard.index;
  options.server_count = command.shard.count;
  BE_ASSIGN_OR_RETURN(const auto server, ps::ParameterServer::create(*node, options));
  BE_RETURN_IF_ERROR(server->listen(address));
  std::printf("ready %s\n", server->address().to_string().c_str());
  std::fflush(stdout);
  end_signals.wait();
  return ok_status();
}

constexpr const char* kFooter =
    "Prints \"ready ADDRESS\" when it can be used and ends cleanly on SIGTERM or SIGINT.\n"
    "Rows live in memory: a server that is started again is empty.\n"
    "Keys are spread over 64 virtual shards; server I of N owns every N-th of them, so all N\n"
    "servers and every client must agree on N:\n"
    "  byteexpress serve --listen 127.0.0.1:9000 --shard 0/2\n"
    "  byteexpress serve --listen 127.0.0.1:9001 --shard 1/2";

}  // namespace

void add_serve(CLI::App& program, Settings& settings, Command& chosen) {
  CLI::App* app = program.add_subcommand("serve", "Run one parameter server");
  const auto command = std::make_shared<ServeCommand>();
  app->footer(kFooter);
  app->option_defaults()->always_capture_default();
  app->add_option("--listen", command->listen, "where to listen; port 0 takes any free one")
      ->type_name("HOST:PORT");
  add_part_option(*app, "--shard", command->shard, "which of how many servers this is (0/1)");
  app->add_option("--workers", settings.server.push_threads, "threads that apply pushes")
      ->check(CLI::Range(1, 256))
      ->always_capture_default(false);
  settings.add_options(*app);
  app->callback([command, &settings, &chosen] {
    chosen = [command, &settings] { return serve(*command, settings); };
  });
}

}  // namespace be::apps
