// An end that closes at the worst moments: its peer is stopped, messages are queued, events are not
// read. Each message ends exactly once, each socket too, in bounded time. For any transport.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <deque>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "be/base/world.h"
#include "be/transport/node.h"
#include "tests/cluster/common/forked_child.h"

namespace be::cluster {

// What an end hears of one socket.
class Ledger final : public SocketHandler {
 public:
  virtual ~Ledger() = default;
  void on_open(Socket& opened) override { socket = &opened; }
  void on_message(Socket&, Buffer) override { ++received; }
  void on_sent(Socket&, uint64_t cookie, const Status& status) override {
    EXPECT_EQ(closed, 0) << "a message ends after its socket";
    ++ends[cookie];
    (status.ok() ? sent : failed) += 1;
  }
  void on_closed(Socket&, const Status& status) override {
    ++closed;
    socket = nullptr;
    why = status;
  }

  Socket* socket = nullptr;
  int closed = 0;
  Status why;
  std::map<uint64_t, int> ends;  // by cookie
  size_t sent = 0;
  size_t failed = 0;
  size_t received = 0;
};

class Closing : public ::testing::Test {
 protected:
  static constexpr Nanoseconds kPatience = 30s;
  // What a node takes at most to go (be/transport/node.cc), and a busy machine.
  static constexpr Nanoseconds kNodeBound = 3s + 3s;
  static constexpr size_t kSockets = 3;

  void start(const NodeOptions& options) {
    options_ = options;
    options_.driven = true;
    peer_ = std::make_unique<ForkedChild>([this](Wire& parent) { serve(parent); });
    const auto port = peer_->wire().hear();
    ASSERT_TRUE(port.has_value());
    descriptors_ = open_descriptors();
    node_ = Node::create(kernel_world(), options_).value();
    Address address = *Address::parse("127.0.0.1:0");
    address.port = static_cast<uint16_t>(*port);
    for (size_t i = 0; i < kSockets; ++i) {
      ledgers_.emplace_back();
      node_->connect(address, {.connect_timeout = kPatience, .transport = {}}, &ledgers_.back());
    }
    ASSERT_TRUE(until([&] {
      return std::all_of(ledgers_.begin(), ledgers_.end(),
                         [](const Ledger& each) { return each.socket != nullptr; });
    })) << ledgers_.front().why.to_string();
  }

  void stop_peer() {
    ::kill(peer_->pid(), SIGSTOP);
    int status = 0;
    ASSERT_EQ(::waitpid(peer_->pid(), &status, WUNTRACED), peer_->pid());
    ASSERT_TRUE(WIFSTOPPED(status));
  }
  void continue_peer() { ::kill(peer_->pid(), SIGCONT); }

  // Small ones and large ones on all sockets, more than credits and grants let go.
  void queue_messages() {
    for (int i = 0; i < 150; ++i) {
      const size_t bytes = i % 10 == 7 ? 1 << 20 : i % 5 == 3 ? 64 << 10 : 100;
      Message message(node_->pool().allocate_buffer(bytes).value());
      ASSERT_TRUE(ledgers_[i % kSockets].socket->send(message, ++cookies_).ok());
    }
  }

  // The peer sends a message on each socket; its thread has when this returns.
  void let_peer_send() {
    ASSERT_TRUE(peer_->wire().say(1));
    ASSERT_TRUE(peer_->wire().hear().has_value());
  }

  bool until(const std::function<bool()>& done) {
    return node_->thread(0).run_until(done, kernel_world().now() + kPatience);
  }
  // Long enough for the thread to arm its completion queue and sleep.
  void drive_for(Nanoseconds time) {
    node_->thread(0).run_until([] { return false; }, kernel_world().now() + time);
  }

  // How long the node takes to go.
  Nanoseconds end_node() {
    const Time begin = kernel_world().now();
    node_.reset();
    return kernel_world().now() - begin;
  }

  void expect_every_end_once() {
    size_t ends = 0;
    for (const Ledger& ledger : ledgers_) {
      EXPECT_EQ(ledger.closed, 1);
      for (const auto& [cookie, times] : ledger.ends) EXPECT_EQ(times, 1) << "message " << cookie;
      ends += ledger.ends.size();
    }
    EXPECT_EQ(ends, cookies_);
  }

  size_t failed() const {
    size_t sum = 0;
    for (const Ledger& ledger : ledgers_) sum += ledger.failed;
    return sum;
  }

  // Where the peer lets go of our memory, and only there.
  void expect_nothing_left() const { EXPECT_EQ(open_descriptors(), descriptors_); }

  std::unique_ptr<ForkedChild> peer_;
  std::unique_ptr<Node> node_;
  std::deque<Ledger> ledgers_;
  uint64_t cookies_ = 0;

 private:
  static size_t open_descriptors() {
    const std::filesystem::directory_iterator all("/proc/self/fd");
    return static_cast<size_t>(std::distance(begin(all), end(all)));
  }

  void serve(Wire& parent) {
    std::deque<Ledger> accepted;
    auto node = Node::create(kernel_world(), options_).value();
    auto listener = node->listen(*Address::parse("127.0.0.1:0"),
                                 [&](Socket& socket) -> SocketHandler* {
                                   accepted.emplace_back();
                                   accepted.back().socket = &socket;
                                   return &accepted.back();
                                 })
                        .value();
    parent.say(listener->address().port);
    for (;;) {
      node->thread(0).run_until([] { return false; }, kernel_world().now() + 5ms);
      if (!parent.hear(0ns)) continue;
      for (Ledger& ledger : accepted) {
        Message message(node->pool().allocate_buffer(100).value());
        if (!ledger.socket->send(message, 1).ok()) std::abort();
      }
      node->thread(0).run_until([] { return false; }, kernel_world().now() + 5ms);
      parent.say(1);
    }
  }

  NodeOptions options_;
  size_t descriptors_ = 0;
};

// The bodies; a test program has one fixture for each transport.
class ClosingCases : public Closing {
 protected:
  void node_goes_while_peer_is_stopped(const NodeOptions& options) {
    ASSERT_NO_FATAL_FAILURE(start(options));
    ASSERT_NO_FATAL_FAILURE(stop_peer());
    ASSERT_NO_FATAL_FAILURE(queue_messages());
    drive_for(50ms);
    EXPECT_LT(end_node(), kNodeBound);
    expect_every_end_once();
    EXPECT_GT(failed(), 0u) << "not all of it had room in the receives of one who is stopped";
  }

  // `bound`: from close() to the last on_closed.
  void sockets_close_while_peer_is_stopped(const NodeOptions& options, Nanoseconds bound) {
    ASSERT_NO_FATAL_FAILURE(start(options));
    ASSERT_NO_FATAL_FAILURE(stop_peer());
    ASSERT_NO_FATAL_FAILURE(queue_messages());
    const Time begin = kernel_world().now();
    for (Ledger& ledger : ledgers_) ledger.socket->close();
    EXPECT_TRUE(until([&] {
      return std::all_of(ledgers_.begin(), ledgers_.end(),
                         [](const Ledger& each) { return each.closed == 1; });
    }));
    EXPECT_LT(kernel_world().now() - begin, bound);
    expect_every_end_once();
    continue_peer();
    EXPECT_LT(end_node(), kNodeBound);
    expect_nothing_left();
  }

  void node_goes_with_events_unread(const NodeOptions& options) {
    ASSERT_NO_FATAL_FAILURE(start(options));
    drive_for(20ms);
    // Armed, and nobody looks any more.
    ASSERT_NO_FATAL_FAILURE(let_peer_send());
    ::poll(nullptr, 0, 20);
    EXPECT_LT(end_node(), kNodeBound);
    expect_every_end_once();
    expect_nothing_left();
  }
};

}  // namespace be::cluster
