// Parameter servers and clients of one process, over TCP on loopback.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "be/ps/parameter_client.h"
#include "be/ps/parameter_server.h"

namespace be::ps {

inline TableSpec sgd_table(uint32_t dim) {
  return {"model", "table", dim, {OptimizerKind::kSgd, 0.5f, 0.1f}, 0.25f, 7};
}

class ServerTest : public testing::Test {
 protected:
  struct Server {
    std::unique_ptr<Node> node;  // outlives the server
    std::unique_ptr<ParameterServer> server;
  };

  static NodeOptions tcp_node() {
    NodeOptions options;
    options.transport = TransportChoice::kTcp;
    options.memory.cap_bytes = size_t{32} << 20;
    return options;
  }

  static Server start_server(const ParameterServerOptions& options, const Address& address) {
    Server server;
    server.node = Node::create(kernel_world(), tcp_node()).value();
    server.server = ParameterServer::create(*server.node, options).value();
    const Status listening = server.server->listen(address);
    EXPECT_TRUE(listening.ok()) << listening.to_string();
    return server;
  }

  void stop_server(size_t index) {
    servers_[index].server.reset();
    servers_[index].node.reset();
  }

  void start_servers(uint32_t count, ParameterServerOptions options = {}) {
    options.server_count = count;
    for (uint32_t i = 0; i < count; ++i) {
      options.server_index = i;
      servers_.push_back(start_server(options, Address::parse("127.0.0.1:0").value()));
      addresses_.push_back(servers_.back().server->address());
    }
  }

  Result<std::unique_ptr<ParameterClient>> connect(
      const NodeOptions& node_options = driven_node()) {
    client_node_ = Node::create(kernel_world(), node_options).value();
    ParameterClientOptions options;
    options.servers = addresses_;
    options.channel.request_timeout = 10s;
    return ParameterClient::connect(*client_node_, options);
  }
  static NodeOptions driven_node() {
    NodeOptions options = tcp_node();
    options.driven = true;
    return options;
  }

  void start(uint32_t servers, const TableSpec& spec, ParameterServerOptions options = {}) {
    start_servers(servers, options);
    client_ = connect().value();
    table_ = client_->create_table(spec).value();
  }

  uint64_t rows() {
    uint64_t rows = 0;
    for (size_t i = 0; i < addresses_.size(); ++i) {
      const StatsResponse stats = client_->stats(i).value();
      for (const TableStats& table : stats.tables()) rows += table.rows();
    }
    return rows;
  }

  std::vector<Server> servers_;
  std::vector<Address> addresses_;
  std::unique_ptr<Node> client_node_;
  std::unique_ptr<ParameterClient> client_;
  const RemoteTable* table_ = nullptr;
};

}  // namespace be::ps
