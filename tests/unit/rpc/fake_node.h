// A Node without threads, descriptors or real time: sockets are pairs of queues, the clock moves
// when the test says so, workers run when the test says so. Client and server share it.
//
//   FakeNode node;
//   ... node.run();                       // posted tasks, messages, timers, until nothing is left
//   ... node.advance(40ms);               // then timers that became due
#pragma once

#include <cstring>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "be/base/executor.h"
#include "be/transport/node.h"

namespace be::rpc {

class FakeClock final : public Clock {
 public:
  Time now() const override { return now_; }
  void advance(Nanoseconds by) { now_ += by; }

 private:
  Time now_ = Time(1h);
};

// Tasks submitted wait for run(); destruction runs what is left, as the real pool does.
class FakeExecutor final : public Executor {
 public:
  Result<std::unique_ptr<Loop>> start_loop(const std::string&, Poller&,
                                           std::function<bool()>) override {
    return error(Code::kUnsupported, "no loops here");
  }
  Result<std::unique_ptr<WorkerPool>> start_workers(const std::string&, int) override {
    std::unique_ptr<WorkerPool> pool = std::make_unique<Pool>(tasks_);
    return pool;
  }
  std::unique_ptr<Gate> make_gate() override { return kernel_world().executor().make_gate(); }
  size_t waiting() const { return tasks_.size(); }
  void run() {
    while (!tasks_.empty()) {
      Task task = std::move(tasks_.front());
      tasks_.pop_front();
      task();
    }
  }

 private:
  struct Pool final : WorkerPool {
    explicit Pool(std::deque<Task>& queue) : tasks(queue) {}
    ~Pool() override {
      while (!tasks.empty()) {
        Task task = std::move(tasks.front());
        tasks.pop_front();
        task();
      }
    }
    void submit(Task task) override { tasks.push_back(std::move(task)); }
    std::deque<Task>& tasks;
  };
  std::deque<Task> tasks_;
};

class FakeWorld final : public World {
 public:
  Clock& clock() override { return clock_; }
  Executor& executor() override { return executor_; }
  StreamNetwork& network() override { return kernel_world().network(); }
  Result<std::unique_ptr<Poller>> make_poller() override { return kernel_world().make_poller(); }
  void random_bytes(std::span<uint8_t> out) override { std::memset(out.data(), 7, out.size()); }

  FakeClock clock_;
  FakeExecutor executor_;
};

class FakeNode;

// One end; what is sent waits in the peer's inbox until the node runs.
class FakeSocket final : public Socket {
 public:
  FakeSocket(FakeNode& node, const Address& remote) : node_(node), remote_(remote) {}

  Status send(Message& message, uint64_t cookie) override;
  void close() override { end_both(error(Code::kClosed, "closed")); }
  TransportKind transport() const override { return TransportKind::kTcp; }
  const Address& remote() const override { return remote_; }
  IoThread& thread() const override;
  size_t max_message_bytes() const override { return 1 << 20; }

  void end_both(const Status& status);

  FakeNode& node_;
  const Address remote_;
  SocketHandler* handler_ = nullptr;
  FakeSocket* peer_ = nullptr;
  std::deque<Buffer> inbox_;
  std::deque<uint64_t> sent_cookies_;
  std::optional<Status> ended_;
  bool told_ = false;
};

class FakeNode final : public Node, public IoThread {
 public:
  FakeNode();
  ~FakeNode() override;

  // Node
  void connect(const Address& remote, const SocketOptions& options,
               SocketHandler* handler) override;
  Result<std::unique_ptr<Listener>> listen(const Address& address, Acceptor acceptor) override;
  RegisteredPool& pool() override { return *pool_; }
  World& world() override { return world_; }
  const NodeOptions& options() const override { return options_; }
  size_t thread_count() const override { return 1; }
  IoThread& thread(size_t) override { return *this; }
  IoThread& thread_for(const Address&) override { return *this; }

  // IoThread
  bool post(Task task) override {
    tasks_.push_back(std::move(task));
    return true;
  }
  bool on_this_thread() const override { return here_; }
  Time now() const override { return world_.clock_.now(); }
  TimerQueue& timers() override { return timers_; }
  Poller& poller() override { return *poller_; }
  bool poll() override;
  // Virtual time: with nothing to do, the clock jumps to the next timer.
  bool run_until(const std::function<bool()>& done, Time deadline, bool) override;

  void run() {
    while (poll()) {
    }
  }
  void advance(Nanoseconds by) {
    world_.clock_.advance(by);
    run();
  }
  FakeExecutor& workers() { return world_.executor_; }

  // What the transport does wrong, by order of the test.
  bool hold_connects_ = false;     // connect() is never decided while set
  size_t queue_limit_ = SIZE_MAX;  // more unsent messages of a socket: kResourceExhausted
  bool hold_messages_ = false;     // what is sent is neither delivered nor reported as sent
  bool here_ = true;               // whether callers count as the I/O thread
  size_t connects_ = 0;
  std::vector<std::unique_ptr<FakeSocket>> sockets_;

 private:
  struct FakeListener;
  struct Connect {
    Address remote;
    SocketHandler* handler;
  };
  bool decide_connects();
  bool progress(FakeSocket& socket);

  FakeWorld world_;
  NodeOptions options_;
  std::unique_ptr<RegisteredPool> pool_;
  std::unique_ptr<Poller> poller_;
  TimerQueue timers_;
  std::deque<Task> tasks_;
  std::deque<Connect> connecting_;
  std::vector<FakeListener*> listeners_;
};

Address fake_address(uint16_t port);  // 127.0.0.1:port

}  // namespace be::rpc
