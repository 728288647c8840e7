// Head of line: 16 sockets move 4 MB messages on one engine, what does a small call on a 17th wait?
//
// Between two turns of a socket the scheduler gives the others at most n - 1 fragments of S bytes
// (be/engine/scheduler.h), so
//
//   P99 of a 100 B call  <=  (n - 1) * S / link rate + C                n = 17, 25 Gbps
//
// C = kConstant is all that is not the link's: the call itself (alone: printed beside), the copy of
// the fragment that is under way when the call begins (softnic copies by the core that also runs
// the loop), and the system's interruptions of two threads that use their cores to the full. Time
// that a thread of ours was ready and had no core, because others use this machine, is subtracted
// from each call (common/run_queue_delay.h); figures with it are printed as "raw".
//
// The contrast has S as large as the messages: there a call waits for whole messages.
//
// The figures are printed; BE_TEST_HEAD_OF_LINE_CALLS=N sets the calls of each (default 2000).
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <vector>

#include "be/base/world.h"
#include "be/transport/node.h"
#include "tests/cluster/common/forked_child.h"
#include "tests/cluster/common/run_queue_delay.h"

namespace be::cluster {
namespace {

constexpr uint64_t kLink = 25'000'000'000;
constexpr int kBulkSockets = 16;
constexpr size_t kBulkBytes = 4'000'000;
constexpr size_t kCallBytes = 100;
constexpr Nanoseconds kConstant = 100us;
constexpr Nanoseconds kPatience = 20s;

NodeOptions options(uint32_t fragment_bytes) {
  NodeOptions made;
  made.transport = TransportChoice::kSoftnic;
  made.softnic.link_bits_per_second = kLink;
  made.engine.fragment_bytes = fragment_bytes;
  made.engine.grants = made.engine.write_requests = 24;  // all 16 may be moving
  made.engine.grant_budget_bytes = 128u << 20;
  made.memory.cap_bytes = size_t{512} << 20;
  return made;
}

// Small messages come back, large ones are taken and dropped.
class Service final : public SocketHandler {
 public:
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

void serve(Wire& parent, uint32_t fragment_bytes) {
  Service service;
  auto node = Node::create(kernel_world(), options(fragment_bytes)).value();
  auto listener = node->listen(*Address::parse("127.0.0.1:0"),
                               [&](Socket&) -> SocketHandler* { return &service; })
                      .value();
  parent.say(listener->address().port);
  parent.hear(1h);
  _exit(0);
}

// Keeps two messages on their way while it is asked to.
class Bulk final : public SocketHandler {
 public:
  explicit Bulk(Buffer& content) : content_(content) {}
  virtual ~Bulk() = default;
  void on_open(Socket& socket) override { socket_ = &socket; }
  void on_message(Socket&, Buffer) override {}
  void on_sent(Socket&, uint64_t, const Status& status) override {
    EXPECT_TRUE(status.ok()) << status.to_string();
    ++sent_;
    --outstanding_;
    if (flowing_) send();
  }
  void on_closed(Socket&, const Status&) override { socket_ = nullptr; }

  bool open() const { return socket_ != nullptr; }
  void flow() {
    flowing_ = true;
    for (int i = 0; i < 2; ++i) send();
  }
  void ebb() { flowing_ = false; }
  bool still() const { return outstanding_ == 0; }
  uint64_t sent() const { return sent_; }

 private:
  void send() {
    Message message(content_.share(0, content_.size()));
    ++outstanding_;
    EXPECT_TRUE(socket_->send(message, 1).ok());
  }

  Buffer& content_;
  Socket* socket_ = nullptr;
  bool flowing_ = false;
  int outstanding_ = 0;
  uint64_t sent_ = 0;
};

class Caller final : public SocketHandler {
 public:
  virtual ~Caller() = default;
  void on_open(Socket& socket) override { socket_ = &socket; }
  void on_message(Socket&, Buffer) override { ++answers_; }
  void on_sent(Socket&, uint64_t, const Status&) override {}
  void on_closed(Socket&, const Status&) override { socket_ = nullptr; }

  Socket* socket_ = nullptr;
  int answers_ = 0;
};

struct Figures {
  Nanoseconds p50{};
  Nanoseconds p99{};
  Nanoseconds raw_p99{};  // with the time that the threads waited for a core
  double bulk_gbps = 0;
};

Nanoseconds percentile(std::vector<Nanoseconds>& times, size_t percent) {
  const auto place = times.begin() + static_cast<std::ptrdiff_t>(times.size() * percent / 100);
  std::nth_element(times.begin(), place, times.end());
  return *place;
}

double us(Nanoseconds time) { return std::chrono::duration<double, std::micro>(time).count(); }

class HeadOfLine : public testing::Test {
 protected:
  void start(uint32_t fragment_bytes) {
    server_ = std::make_unique<ForkedChild>([=](Wire& w) { serve(w, fragment_bytes); });
    const auto port = server_->wire().hear();
    ASSERT_TRUE(port.has_value());
    NodeOptions ours = options(fragment_bytes);
    ours.driven = true;
    node_ = Node::create(kernel_world(), ours).value();
    content_ = node_->pool().allocate_buffer(kBulkBytes).value();
    std::fill_n(content_.data(), content_.size(), uint8_t{7});
    Address address = *Address::parse("127.0.0.1:0");
    address.port = static_cast<uint16_t>(*port);
    for (int i = 0; i < kBulkSockets; ++i) {
      bulk_.push_back(std::make_unique<Bulk>(content_));
      node_->connect(address, {.connect_timeout = kPatience, .transport = {}}, bulk_.back().get());
    }
    node_->connect(address, {.connect_timeout = kPatience, .transport = {}}, &caller_);
    delay_.watch(server_->pid());
    delay_.watch(getpid());
    ASSERT_TRUE(until([&] {
      return caller_.socket_ != nullptr &&
             std::all_of(bulk_.begin(), bulk_.end(), [](auto& each) { return each->open(); });
    }));
  }

  void TearDown() override {
    for (auto& each : bulk_) each->ebb();
    if (node_ != nullptr) {
      EXPECT_TRUE(until([&] { return still(); }));
    }
    server_.reset();  // and with it its grip on our memory
    content_.reset();
    node_.reset();
  }

  bool still() const {
    return std::all_of(bulk_.begin(), bulk_.end(), [](auto& each) { return each->still(); });
  }

  bool until(const std::function<bool()>& done) {
    IoThread& thread = node_->thread(0);
    return thread.run_until(done, thread.now() + kPatience);
  }

  uint64_t bulk_messages() const {
    uint64_t sum = 0;
    for (const auto& each : bulk_) sum += each->sent();
    return sum;
  }

  Figures call(int count) {
    std::vector<Nanoseconds> raw;
    std::vector<Nanoseconds> net;
    const Time start = kernel_world().now();
    const uint64_t before = bulk_messages();
    for (int i = 0; i < count; ++i) {
      // At any moment of the others' turns.
      const Nanoseconds pause(random_() % 100'000);
      node_->thread(0).run_until([] { return false; }, kernel_world().now() + pause, true);
      const int answers = caller_.answers_;
      const Nanoseconds waited = delay_.so_far();
      const Time begin = kernel_world().now();
      Message message(node_->pool().allocate_buffer(kCallBytes).value());
      EXPECT_TRUE(caller_.socket_->send(message, 0).ok());
      if (!until([&] { return caller_.answers_ > answers; })) {
        ADD_FAILURE() << "no answer to call " << i;
        return {};
      }
      raw.push_back(kernel_world().now() - begin);
      net.push_back(std::max(raw.back() - (delay_.so_far() - waited), Nanoseconds(0)));
    }
    const Nanoseconds took = kernel_world().now() - start;
    Figures figures;
    figures.p50 = percentile(net, 50);
    figures.p99 = percentile(net, 99);
    figures.raw_p99 = percentile(raw, 99);
    figures.bulk_gbps = static_cast<double>((bulk_messages() - before) * kBulkBytes * 8) /
                        static_cast<double>(took.count());
    return figures;
  }

  struct Run {
    Figures alone;
    Figures beside;
  };
  Run measure(uint32_t fragment_bytes, int calls) {
    Run run;
    run.alone = call(calls);
    for (auto& each : bulk_) each->flow();
    EXPECT_TRUE(until([&] { return bulk_messages() >= 2 * kBulkSockets; }));
    run.beside = call(calls);
    for (auto& each : bulk_) each->ebb();
    EXPECT_TRUE(until([&] { return still(); }));
    std::printf("S %7u B, (n-1) S / rate %7.1f us", fragment_bytes,
                us(turns_of_others(fragment_bytes)));
    print("alone", run.alone);
    print("beside bulk", run.beside);
    std::printf(" at %.1f Gbps\n", run.beside.bulk_gbps);
    return run;
  }

  static void print(const char* what, const Figures& figures) {
    std::printf("; %s P50 %6.1f P99 %6.1f (raw %6.1f) us", what, us(figures.p50), us(figures.p99),
                us(figures.raw_p99));
  }

  static Nanoseconds turns_of_others(uint32_t fragment_bytes) {
    return Nanoseconds(int64_t{kBulkSockets} * fragment_bytes * 8 * 1'000'000'000 /
                       static_cast<int64_t>(kLink));
  }

  static int calls() {
    const char* set = std::getenv("BE_TEST_HEAD_OF_LINE_CALLS");
    return set != nullptr ? std::max(100, std::atoi(set)) : 2000;
  }

  std::unique_ptr<ForkedChild> server_;
  RunQueueDelay delay_;
  std::unique_ptr<Node> node_;
  Buffer content_;
  std::vector<std::unique_ptr<Bulk>> bulk_;
  Caller caller_;
  std::minstd_rand random_{20261130};
};

class Fragments : public HeadOfLine, public testing::WithParamInterface<uint32_t> {};

TEST_P(Fragments, ASmallCallWaitsForOneTurnOfTheOthersAtMost) {
  const uint32_t fragment = GetParam();
  ASSERT_NO_FATAL_FAILURE(start(fragment));
  for (int repetition = 0; repetition < 3; ++repetition) {
    const Run run = measure(fragment, calls());
    EXPECT_LE(run.beside.p99, turns_of_others(fragment) + kConstant) << "repetition " << repetition;
  }
}

INSTANTIATE_TEST_SUITE_P(HeadOfLine, Fragments, testing::Values(8u << 10, 64u << 10));

TEST_F(HeadOfLine, WithoutFragmentsItWaitsForWholeMessages) {
  constexpr uint32_t kWhole = 4u << 20;
  ASSERT_NO_FATAL_FAILURE(start(kWhole));
  const Run run = measure(kWhole, calls() / 4);
  // Half of them find a message on the link that is not half gone.
  EXPECT_GT(run.beside.p50, turns_of_others(kWhole) / kBulkSockets / 2);
}

}  // namespace
}  // namespace be::cluster
