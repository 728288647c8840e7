// Settings: the configuration that every subcommand shares, and where it comes from.
//
//   default < profile < --config FILE < environment BE_... < --set KEY=VALUE, --transport
//
// Owned by main; add_options before parsing, load() after it. Failure: names source and key.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "be/base/config.h"
#include "be/ps/parameter_server.h"
#include "be/rpc/channel.h"
#include "be/transport/node.h"

namespace be::apps {

class Settings {
 public:
  Settings();

  void add_options(CLI::App& command);
  Status load();

  Config& config() { return config_; }  // bound to the fields below

  NodeOptions node;
  rpc::ChannelOptions channel;
  ps::ParameterServerOptions server;

  // What a child process needs to run with the same settings; without --transport.
  std::vector<std::string> forwarded() const;

 private:
  void declare_transport();
  void declare_engine();
  void declare_hardware();
  void declare_rpc();

  Config config_;
  std::string file_;
  std::vector<std::string> sets_;
  std::string transport_;
};

}  // namespace be::apps
