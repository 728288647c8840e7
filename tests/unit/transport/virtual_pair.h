// A client and a server in virtual time, each with a FaultyDevice over a simulated RNIC.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "be/sim/device.h"
#include "faulty_device.h"
#include "transport_support.h"

namespace be::test {

// One process. What it had opened is as it was when its node is destroyed.
class VirtualEnd {
 public:
  VirtualEnd(sim::Simulation& simulation, sim::Internet& internet, sim::Fabric& fabric,
             uint32_t index, const NodeOptions& options)
      : host(simulation, internet, index, {}) {
    auto nic = std::make_unique<sim::RnicDevice>(host, fabric);
    rnic = nic.get();
    auto made = std::make_unique<FaultyDevice>(std::move(nic));
    device = made.get();
    std::vector<std::unique_ptr<Device>> devices;
    devices.push_back(std::move(made));
    node = Node::create(host, options, std::move(devices)).value();
  }

  int open_descriptors() const {
    int count = 0;
    for (int fd = 0; fd < 100'000; ++fd) count += host.find(fd) != nullptr;
    return count;
  }

  sim::Host host;
  FaultyDevice* device = nullptr;
  sim::RnicDevice* rnic = nullptr;  // below it
  std::unique_ptr<Node> node;
};

class VirtualPair : public ::testing::Test {
 protected:
  static constexpr uint16_t kPort = 9000;

  void start(NodeOptions options = {}) {
    options.memory.block_bytes = 64 << 10;
    options.memory.cap_bytes = 8 << 20;
    simulation.on_violation = [this] { ADD_FAILURE() << simulation.violation(); };
    client = std::make_unique<VirtualEnd>(simulation, internet, fabric, 0, options);
    server = std::make_unique<VirtualEnd>(simulation, internet, fabric, 1, options);
    address = server->host.address(kPort);
    listener = server->node
                   ->listen(address,
                            [this](Socket&) -> SocketHandler* {
                              accepted.push_back(std::make_unique<Recorder>());
                              echo(*accepted.back());
                              return accepted.back().get();
                            })
                   .value();
  }

  void TearDown() override {
    for (const auto& handler : handlers) handler->messages.clear();
    listener.reset();
    if (client != nullptr) client->node.reset();
    if (server != nullptr) server->node.reset();
    EXPECT_EQ(simulation.violation(), "");  // of the devices, too: nothing of theirs is left
  }

  bool until(const std::function<bool()>& done, Nanoseconds patience = kPatience) {
    return simulation.run_until(done, simulation.now() + patience);
  }
  void pass(Nanoseconds time) {
    until([] { return false; }, time);
  }

  // A connect that has ended, well or not.
  Recorder& connect(const SocketOptions& options = {}) {
    handlers.push_back(std::make_unique<Recorder>());
    Recorder& handler = *handlers.back();
    client->node->connect(address, options, &handler);
    EXPECT_TRUE(until([&] { return handler.opened + handler.closed > 0; }));
    return handler;
  }

  // That a request comes back.
  void expect_echo(Recorder& handler, const std::string& text) {
    ASSERT_NE(handler.socket, nullptr) << handler.close_status.to_string();
    ASSERT_TRUE(send_text(*handler.socket, *client->node, text).ok());
    ASSERT_TRUE(until([&] { return !handler.messages.empty() || handler.closed > 0; }));
    ASSERT_EQ(handler.messages.size(), 1u) << handler.close_status.to_string();
    EXPECT_EQ(text_of(handler.messages.front()), text);
    handler.messages.clear();
  }

  void close(Recorder& handler) {
    if (handler.socket != nullptr) handler.socket->close();
    EXPECT_TRUE(until([&] {
      for (const auto& each : accepted) {
        if (each->closed == 0) return false;
      }
      return handler.closed == 1;
    }));
  }

  sim::Simulation simulation{20261130};
  sim::Internet internet;
  sim::Fabric fabric{simulation, {}};
  std::unique_ptr<VirtualEnd> client;
  std::unique_ptr<VirtualEnd> server;
  Address address;
  std::vector<std::unique_ptr<Recorder>> accepted;
  std::vector<std::unique_ptr<Recorder>> handlers;
  std::unique_ptr<Listener> listener;
};

}  // namespace be::test
