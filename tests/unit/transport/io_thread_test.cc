// The loop itself: tasks from elsewhere, waiting, sleeping, and memory back-pressure.
#include <time.h>

#include <atomic>
#include <thread>
#include <vector>

#include "be/transport/task_inbox.h"
#include "transport_support.h"

namespace be::test {
namespace {

Nanoseconds thread_cpu_time() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return std::chrono::seconds(now.tv_sec) + Nanoseconds(now.tv_nsec);
}

TEST(TaskInbox, RunsTasksOfEachThreadInTheirOrder) {
  TaskInbox inbox;
  constexpr int kThreads = 4;
  constexpr int kTasks = 20'000;
  std::vector<int> next(kThreads, 0);
  int run = 0;
  bool in_order = true;
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      for (int i = 0; i < kTasks; ++i) {
        inbox.push([&, thread, i] {
          in_order &= next[static_cast<size_t>(thread)]++ == i;
          ++run;
        });
      }
    });
  }
  while (run < kThreads * kTasks) inbox.run_all();
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(in_order);
  EXPECT_FALSE(inbox.run_all());
}

TEST(TaskInbox, TellsOnePusherOfABatchToWakeTheSleeper) {
  TaskInbox inbox;
  EXPECT_EQ(inbox.push([] {}), TaskInbox::Pushed::kQueued);
  EXPECT_FALSE(inbox.about_to_sleep());
  inbox.run_all();
  ASSERT_TRUE(inbox.about_to_sleep());
  EXPECT_EQ(inbox.push([] {}), TaskInbox::Pushed::kQueuedAndWakeOwner);
  EXPECT_EQ(inbox.push([] {}), TaskInbox::Pushed::kQueued);
}

TEST(TaskInbox, RefusesAfterItsEnd) {
  TaskInbox inbox;
  int run = 0;
  inbox.push([&] { ++run; });
  inbox.close_and_run();
  EXPECT_EQ(run, 1);
  EXPECT_EQ(inbox.push([&] { ++run; }), TaskInbox::Pushed::kClosed);
  EXPECT_FALSE(inbox.run_all());
  EXPECT_EQ(run, 1);
}

TEST(IoThread, ADrivenOneBelongsToItsDriver) {
  auto node = make_node(driven_options());
  IoThread& thread = node->thread(0);
  EXPECT_TRUE(thread.on_this_thread());
  bool inside = false;
  bool outside = true;
  thread.post([&] { inside = thread.on_this_thread(); });
  EXPECT_TRUE(thread.poll());
  std::thread([&] { outside = thread.on_this_thread(); }).join();
  EXPECT_TRUE(inside);
  EXPECT_FALSE(outside);
}

TEST(IoThread, RunUntilEndsAtItsDeadlineAndSleepsUntilThen) {
  auto node = make_node(driven_options());
  const Time begin = kernel_world().now();
  const Nanoseconds cpu_before = thread_cpu_time();
  EXPECT_FALSE(node->thread(0).run_until([] { return false; }, begin + 100ms));
  EXPECT_GE(kernel_world().now(), begin + 100ms);
  EXPECT_LT(thread_cpu_time() - cpu_before, 30ms);
}

TEST(IoThread, RunsTimersWhileItSleeps) {
  auto node = make_node(driven_options());
  IoThread& thread = node->thread(0);
  int ticks = 0;
  std::function<void()> tick = [&] {
    if (++ticks < 5) thread.timers().schedule(thread.now() + 2ms, [&] { tick(); });
  };
  tick();
  EXPECT_TRUE(thread.run_until([&] { return ticks == 5; }, thread.now() + kPatience));
}

TEST(IoThread, APostWakesASleeper) {
  NodeOptions options = driven_options();
  options.driven = false;
  options.spin = 0ns;
  options.io_threads = 2;
  auto node = make_node(options);
  auto driven = make_node(driven_options());
  // Ping-pong through three loops: each hop finds its thread asleep.
  std::atomic<int> hops = 0;
  std::function<void(size_t)> hop = [&](size_t from) {
    if (++hops == 1000) return driven->thread(0).post([] {}), void();
    node->thread(1 - from).post([&, from] { hop(1 - from); });
  };
  node->thread(0).post([&] { hop(0); });
  EXPECT_TRUE(
      driven->thread(0).run_until([&] { return hops == 1000; }, kernel_world().now() + kPatience));
}

TEST(IoThread, RefusesTasksOnceItsNodeIsShutDown) {
  NodeOptions options = driven_options();
  options.driven = false;
  std::atomic<bool> refused = false;
  std::atomic<bool> go_on = true;
  std::atomic<int> accepted = 0;
  std::atomic<int> run = 0;
  auto node = make_node(options);
  // A poster that hears of the end by the refusal alone must stop before the node is gone, so
  // the tasks themselves tell when to end.
  IoThread& thread = node->thread(0);
  std::thread poster([&] {
    while (go_on && !refused) {
      if (thread.post([&] { ++run; })) {
        ++accepted;
      } else {
        refused = true;
      }
      if (accepted == 10'000) go_on = false;
    }
  });
  poster.join();
  node.reset();
  EXPECT_EQ(run, accepted);
}

TEST(Nodes, RefuseImpossibleOptions) {
  NodeOptions options = driven_options();
  options.io_threads = 2;
  EXPECT_EQ(Node::create(kernel_world(), options).status().code(), Code::kInvalidArgument);
  options.driven = false;
  options.io_threads = 0;
  EXPECT_EQ(Node::create(kernel_world(), options).status().code(), Code::kInvalidArgument);
}

TEST(Nodes, SpreadRemotesOverTheirThreadsAndKeepThem) {
  NodeOptions options = driven_options();
  options.driven = false;
  options.io_threads = 3;
  auto node = make_node(options);
  Address address = *Address::parse("10.0.0.1:9000");
  std::vector<IoThread*> first;
  for (uint16_t port = 1; port <= 6; ++port) {
    address.port = port;
    first.push_back(&node->thread_for(address));
  }
  EXPECT_EQ(first[0], first[3]);
  EXPECT_NE(first[0], first[1]);
  EXPECT_NE(first[1], first[2]);
  for (uint16_t port = 1; port <= 6; ++port) {
    address.port = port;
    EXPECT_EQ(&node->thread_for(address), first[port - 1u]);
  }
}

// Started nodes on both sides, several threads: what the driven tests cannot see.
TEST(Nodes, CarryTrafficOnTheirOwnThreads) {
  NodeOptions options = driven_options();
  options.driven = false;
  options.io_threads = 2;
  auto server = make_node(options);
  auto client = make_node(options);
  auto waiting = make_node(driven_options());
  std::function<void()> tell = [&] { waiting->thread(0).post([] {}); };

  class Echo final : public SocketHandler {
   public:
    virtual ~Echo() = default;
    void on_open(Socket&) override {}
    void on_message(Socket& socket, Buffer buffer) override {
      Message message(std::move(buffer));
      EXPECT_TRUE(socket.send(message, 0).ok());
    }
    void on_sent(Socket&, uint64_t, const Status&) override {}
    void on_closed(Socket&, const Status&) override {
      ++closed;
      tell();
    }
    std::atomic<int> closed = 0;
    std::function<void()> tell;
  } echo_handler;
  echo_handler.tell = tell;

  class Client final : public SocketHandler {
   public:
    Client(Node& node, std::function<void()> tell) : node_(node), tell_(std::move(tell)) {}
    virtual ~Client() = default;
    void on_open(Socket& socket) override { next(socket); }
    void on_message(Socket& socket, Buffer) override {
      if (++received < 500) {
        next(socket);
      } else {
        socket.close();
      }
    }
    void on_sent(Socket&, uint64_t, const Status&) override {}
    void on_closed(Socket&, const Status& status) override {
      EXPECT_EQ(status.code(), Code::kClosed) << status.to_string();
      ++closed;
      tell_();
    }
    std::atomic<int> received = 0;
    std::atomic<int> closed = 0;

   private:
    void next(Socket& socket) {
      Message message(*node_.pool().allocate_buffer(1 + static_cast<size_t>(received) * 50));
      EXPECT_TRUE(socket.send(message, 0).ok());
    }
    Node& node_;
    std::function<void()> tell_;
  };

  auto listener =
      server->listen(any_loopback_port(), [&](Socket&) -> SocketHandler* { return &echo_handler; });
  ASSERT_TRUE(listener.ok());
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 4; ++i) {
    clients.push_back(std::make_unique<Client>(*client, tell));
    client->connect((*listener)->address(), {.connect_timeout = kPatience, .transport = {}},
                    clients.back().get());
  }
  EXPECT_TRUE(waiting->thread(0).run_until(
      [&] {
        int closed = 0;
        for (auto& each : clients) closed += each->closed;
        return closed == 4 && echo_handler.closed == 4;
      },
      kernel_world().now() + kPatience));
  listener->reset();
  client.reset();
  server.reset();
}

TEST(BackPressure, AtTheMemoryCapAConnectionWaitsAndGoesOn) {
  NodeOptions options = driven_options();
  auto client = make_node(options);
  options.memory.cap_bytes = size_t{8} << 20;
  options.max_message_bytes = 64 << 20;
  auto server = make_node(options);
  Host host(*server);
  Recorder handler;
  client->connect(host.address(), {}, &handler);
  ASSERT_TRUE(drive({client.get(), server.get()}, [&] { return handler.opened == 1; }));
  Recorder& keeper = host.accepted(0);

  constexpr size_t kBytes = 1'000'000;
  constexpr uint32_t kCount = 40;
  for (uint32_t i = 0; i < kCount; ++i) {
    Message message(patterned(*client, kBytes, i));
    ASSERT_TRUE(handler.socket->send(message, 0).ok());
  }
  // The keeper lets go only when no more memory is to be had.
  uint32_t seen = 0;
  size_t most_at_once = 0;
  ASSERT_TRUE(drive({client.get(), server.get()}, [&] {
    most_at_once = std::max(most_at_once, keeper.messages.size());
    if (seen + keeper.messages.size() == kCount || !server->pool().allocate_buffer(kBytes).ok()) {
      for (Buffer& message : keeper.messages) {
        EXPECT_TRUE(has_pattern(message, kBytes, seen));
        ++seen;
      }
      keeper.messages.clear();
    }
    return seen == kCount;
  }));
  EXPECT_LT(most_at_once, 9u);
  EXPECT_EQ(keeper.closed, 0);

  // What can never fit ends the connection, by name.
  Message impossible(patterned(*client, 16 << 20, 1));
  ASSERT_TRUE(handler.socket->send(impossible, 0).ok());
  ASSERT_TRUE(drive({client.get(), server.get()}, [&] { return keeper.closed == 1; }));
  EXPECT_EQ(keeper.close_status.code(), Code::kResourceExhausted);
  ASSERT_TRUE(drive({client.get(), server.get()}, [&] { return handler.closed == 1; }));
}

}  // namespace
}  // namespace be::test
