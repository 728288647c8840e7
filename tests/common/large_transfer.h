// One large message to a process that is called all the while: how long do small calls take?
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "be/base/world.h"
#include "be/transport/node.h"
#include "tests/cluster/common/forked_child.h"
#include "tests/cluster/common/run_queue_delay.h"

namespace be::cluster {

class LargeTransfer : public ::testing::Test {
 protected:
  static constexpr size_t kCallBytes = 100;
  static constexpr Nanoseconds kPatience = 60s;

  struct Figures {
    Nanoseconds took{};  // the transfer
    size_t calls = 0;    // meanwhile
    Nanoseconds p99{};   // without what our threads waited for a core (run_queue_delay.h)
    Nanoseconds raw_p99{};
  };

  // The second of two transfers: for the first the server's thread makes the memory that it lands
  // in.
  Figures transfer(NodeOptions options, size_t bytes) {
    ForkedChild server([&](Wire& parent) { serve(parent, options); });
    const auto port = server.wire().hear(kPatience);
    EXPECT_TRUE(port.has_value());
    if (!port) return {};
    options.driven = true;
    auto node = Node::create(kernel_world(), options).value();
    Address address = *Address::parse("127.0.0.1:0");
    address.port = static_cast<uint16_t>(*port);
    End bulk;
    End caller;
    for (End* end : {&bulk, &caller}) {
      node->connect(address, {.connect_timeout = kPatience, .transport = {}}, end);
    }
    IoThread& thread = node->thread(0);
    const auto until = [&](const std::function<bool()>& done) {
      return thread.run_until(done, kernel_world().now() + kPatience);
    };
    EXPECT_TRUE(until([&] { return bulk.socket != nullptr && caller.socket != nullptr; }));
    if (bulk.socket == nullptr || caller.socket == nullptr) return {};
    RunQueueDelay delay;
    delay.watch(server.pid());
    delay.watch(getpid());

    Figures figures;
    for (int round = 0; round < 2; ++round) {
      Buffer content = node->pool().allocate_buffer(bytes).value();
      std::memset(content.data(), 7, content.size());
      std::vector<Nanoseconds> raw;
      std::vector<Nanoseconds> net;
      const Time begin = kernel_world().now();
      Message message(std::move(content));
      EXPECT_TRUE(bulk.socket->send(message, 1).ok());
      while (bulk.sent == round && bulk.socket != nullptr) {
        const int answers = caller.answers;
        const Nanoseconds waited = delay.so_far();
        const Time start = kernel_world().now();
        Message call(node->pool().allocate_buffer(kCallBytes).value());
        EXPECT_TRUE(caller.socket->send(call, 0).ok());
        if (!until([&] { return caller.answers > answers || caller.socket == nullptr; }) ||
            caller.socket == nullptr) {
          ADD_FAILURE() << "no answer: " << caller.why.to_string();
          return {};
        }
        raw.push_back(kernel_world().now() - start);
        net.push_back(std::max(raw.back() - (delay.so_far() - waited), Nanoseconds(0)));
      }
      EXPECT_EQ(bulk.sent, round + 1) << bulk.why.to_string();
      figures = {.took = kernel_world().now() - begin,
                 .calls = net.size(),
                 .p99 = p99(net),
                 .raw_p99 = p99(raw)};
      std::printf(
          "%zu MB in %.1f ms, %zu calls of %zu B: P99 %.3f ms (raw %.3f), worst %.3f ms%s\n",
          bytes >> 20, ms(figures.took), figures.calls, kCallBytes, ms(figures.p99),
          ms(figures.raw_p99), ms(raw.back()), round == 0 ? " (the first: memory is made)" : "");
    }
    return figures;
  }

 private:
  struct End final : SocketHandler {
    virtual ~End() = default;
    void on_open(Socket& opened) override { socket = &opened; }
    void on_message(Socket&, Buffer) override { ++answers; }
    void on_sent(Socket&, uint64_t, const Status& status) override {
      EXPECT_TRUE(status.ok()) << status.to_string();
      ++sent;
    }
    void on_closed(Socket&, const Status& status) override {
      socket = nullptr;
      why = status;
    }
    Socket* socket = nullptr;
    int answers = 0;
    int sent = 0;
    Status why;
  };

  // Small messages come back, large ones are taken and dropped.
  struct Service final : SocketHandler {
    virtual ~Service() = default;
    void on_open(Socket&) override {}
    void on_message(Socket& socket, Buffer buffer) override {
      if (buffer.size() > kCallBytes) return;
      Message message(std::move(buffer));
      if (!socket.send(message, 0).ok()) std::abort();
    }
    void on_sent(Socket&, uint64_t, const Status&) override {}
    void on_closed(Socket&, const Status&) override {}
  };

  static void serve(Wire& parent, const NodeOptions& options) {
    Service service;
    auto node = Node::create(kernel_world(), options).value();
    auto listener = node->listen(*Address::parse("127.0.0.1:0"),
                                 [&](Socket&) -> SocketHandler* { return &service; })
                        .value();
    parent.say(listener->address().port);
    parent.hear(1h);
    _exit(0);
  }

  static Nanoseconds p99(std::vector<Nanoseconds>& times) {  // sorts them
    std::sort(times.begin(), times.end());
    return times[times.size() * 99 / 100];
  }
  static double ms(Nanoseconds time) {
    return std::chrono::duration<double, std::milli>(time).count();
  }
};

}  // namespace be::cluster
