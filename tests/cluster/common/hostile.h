// What the tests of hostile peers share: child processes, a Node that sends every message back, and
// a handler that counts the answers. Children are forked before the Node exists.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "be/base/unique_fd.h"
#include "be/transport/node.h"
#include "tests/common/must_hold.h"

namespace be::cluster {

inline constexpr Nanoseconds kPatience = 20s;

// Runs `body` in a forked process, which ends with 0 when it returns. `body` must wait for
// something of ours before it opens devices or threads.
class Child {
 public:
  explicit Child(const std::function<void(int to_parent)>& body) {
    int pair[2];
    MUST_HOLD(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
    pid_ = fork();
    MUST_HOLD(pid_ >= 0);
    if (pid_ == 0) {
      ::close(pair[0]);
      alarm(60);  // whatever happens, we do not stay
      body(pair[1]);
      _exit(0);
    }
    ::close(pair[1]);
    socket_ = pair[0];
  }
  ~Child() {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
    ::close(socket_);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  void tell(uint64_t value) const {
    MUST_HOLD(write(socket_, &value, sizeof(value)) == sizeof(value));
  }
  uint64_t hear() const { return hear(socket_); }
  static uint64_t hear(int socket) {
    uint64_t value = 0;
    MUST_HOLD(recv(socket, &value, sizeof(value), MSG_WAITALL) == sizeof(value));
    return value;
  }
  static void say(int socket, uint64_t value) {
    MUST_HOLD(write(socket, &value, sizeof(value)) == sizeof(value));
  }
  // Whether it has ended with 0.
  bool ended_well() {
    int status = 0;
    MUST_HOLD(waitpid(std::exchange(pid_, -1), &status, 0) > 0);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }

 private:
  pid_t pid_ = -1;
  int socket_ = -1;
};

inline Address loopback(uint64_t port) {
  return Address::parse("127.0.0.1:" + std::to_string(port)).value();
}

inline UniqueFd dial(uint64_t port) {
  UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(port));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(fd.get(), reinterpret_cast<sockaddr*>(&to), sizeof(to)) != 0) fd.reset();
  return fd;
}

inline NodeOptions node_options(const std::string& secret = "") {
  NodeOptions options;
  options.memory = {.block_bytes = size_t{1} << 20, .cap_bytes = size_t{64} << 20};
  options.secret = secret;
  return options;
}

template <typename Done>
bool wait_for(const Done& done, Nanoseconds patience = kPatience) {
  const auto end = std::chrono::steady_clock::now() + patience;
  while (!done()) {
    if (std::chrono::steady_clock::now() >= end) return false;
    std::this_thread::sleep_for(1ms);
  }
  return true;
}

// --- The victim: a Node with its own thread, which sends every message back ---

class EchoNode {
 public:
  explicit EchoNode(const NodeOptions& options) {
    node = Node::create(kernel_world(), options).value();
    listener_ = node->listen(loopback(0),
                             [this](Socket& socket) {
                               const std::lock_guard lock(mutex_);
                               ends_.push_back(std::make_unique<End>(*this));
                               ends_.back()->open = &socket;
                               return ends_.back().get();
                             })
                    .value();
  }

  uint64_t port() const { return listener_->address().port; }
  size_t accepted() {
    const std::lock_guard lock(mutex_);
    return ends_.size();
  }
  // How the n-th accepted socket has ended; nothing while it is open.
  std::optional<Status> end_of(size_t n) {
    const std::lock_guard lock(mutex_);
    return n < ends_.size() ? ends_[n]->ended : std::nullopt;
  }

  std::unique_ptr<Node> node;

 private:
  struct End final : SocketHandler {
    explicit End(EchoNode& owner) : victim(owner) {}
    void on_open(Socket&) override {}
    void on_message(Socket& socket, Buffer message) override {
      Message echo(std::move(message));
      socket.send(echo, 0).ignore();
    }
    void on_sent(Socket&, uint64_t, const Status&) override {}
    void on_closed(Socket&, const Status& status) override {
      const std::lock_guard lock(victim.mutex_);
      ended = status;
    }
    EchoNode& victim;
    Socket* open = nullptr;
    std::optional<Status> ended;
  };

  std::mutex mutex_;
  std::vector<std::unique_ptr<End>> ends_;
  std::unique_ptr<Listener> listener_;
};
// Counts the echoes of 100 bytes.
class Pinger final : public SocketHandler {
 public:
  void on_open(Socket& socket) override { open = &socket; }
  void on_message(Socket&, Buffer message) override {
    MUST_HOLD(message.size() == 100 && message.data()[99] == 7);
    ++answers;
  }
  void on_sent(Socket&, uint64_t, const Status&) override {}
  void on_closed(Socket&, const Status&) override {
    open = nullptr;
    closed = true;
  }
  Socket* open = nullptr;
  bool closed = false;
  uint64_t answers = 0;
};
}  // namespace be::cluster
