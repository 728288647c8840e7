// 512 B messages a second over many queue pairs (figure 11), softnic with thread domains or
// without.
//
// Two processes, each with one device and some I/O threads; every queue pair is an engine of its
// own, to a listening port of its own, dealt to the threads in turn. Each keeps `--outstanding`
// messages on their way, written anew, each answered by 32 B.
//
// Without a thread domain softnic takes one of four locks at each post, that queue pairs share: a
// model of the doorbell registers that a NIC's provider shares among them. The lock is modelled,
// the contention is real; it says nothing about a NIC.
//
// Prints one JSON object; bench/figure 11 runs it for every point.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "apps/touch.h"
#include "be/base/cpu_time.h"
#include "be/softnic/device.h"
#include "be/transport/node.h"
#include "bench/common/need.h"
#include "bench/common/server_process.h"

namespace {

using namespace std::chrono_literals;
using be::Address;
using be::Buffer;
using be::Message;
using be::Node;
using be::Result;
using be::Socket;
using be::Status;
using be::Time;
using be::bench::die;
using be::bench::need;

constexpr size_t kMessageBytes = 512;
constexpr size_t kReplyBytes = 32;
constexpr be::Nanoseconds kPatience = 30s;

struct Options {
  size_t queue_pairs = 8;
  size_t threads = 1;
  bool no_domains = false;
  uint32_t outstanding = 16;
  double seconds = 0.5;
  bool server = false;
};

struct End {
  be::softnic::SoftnicDevice* device;  // the node's
  std::unique_ptr<Node> node;
};

End make_end(const Options& options) {
  be::NodeOptions made;
  made.transport = be::TransportChoice::kSoftnic;
  made.io_threads = options.threads;
  made.handshake_timeout = kPatience;
  std::vector<std::unique_ptr<be::Device>> devices;
  devices.push_back(need(be::open_softnic({})));
  auto* device = static_cast<be::softnic::SoftnicDevice*>(devices.front().get());
  if (options.no_domains) device->forget_thread_domains();
  return {device, need(Node::create(be::kernel_world(), made, std::move(devices)))};
}

class Answering final : public be::SocketHandler {
 public:
  virtual ~Answering() = default;
  void on_open(Socket&) override {}
  void on_message(Socket& socket, Buffer message) override {
    Message reply;
    reply.header_bytes = kReplyBytes;
    be::apps::rewrite(reply.header, kReplyBytes,
                      static_cast<uint8_t>(be::apps::read_all(message.data(), message.size())));
    need(socket.send(reply, 0));
  }
  void on_sent(Socket&, uint64_t, const Status&) override {}
  void on_closed(Socket&, const Status&) override {}
};

// Until it is killed.
[[noreturn]] void serve(const Options& options) {
  Answering handler;
  const End end = make_end(options);
  std::vector<std::unique_ptr<be::Listener>> listeners;
  std::string ports;
  for (size_t i = 0; i < options.queue_pairs; ++i) {
    listeners.push_back(need(
        end.node->listen(need(Address::parse("127.0.0.1:0")), [&](Socket&) { return &handler; })));
    ports += listeners.back()->address().to_string() + " ";
  }
  std::printf("%s\n", ports.c_str());
  std::fflush(stdout);
  for (;;) pause();
}

// One queue pair's socket; all but answered() is on its I/O thread.
class Flow final : public be::SocketHandler {
 public:
  Flow(Node& node, const Options& options) : node_(node), options_(options) {}
  virtual ~Flow() = default;

  bool open() const { return open_; }
  uint64_t answered() const { return answered_.load(std::memory_order_relaxed); }
  void start() {
    for (uint32_t i = 0; i < options_.outstanding; ++i) send();
  }

  void on_open(Socket& socket) override {
    socket_ = &socket;
    open_ = true;
  }
  void on_message(Socket&, Buffer) override {
    answered_.store(answered() + 1, std::memory_order_relaxed);
    if (!ending) send();
  }
  void on_sent(Socket&, uint64_t, const Status&) override {}
  void on_closed(Socket&, const Status& why) override {
    if (!ending) die(why);
  }

  static std::atomic<bool> ending;

 private:
  void send() {
    Buffer payload = need(node_.pool().allocate_buffer(kMessageBytes));
    be::apps::rewrite(payload.data(), kMessageBytes, ++written_);
    Message message(std::move(payload));
    need(socket_->send(message, 0));
  }

  Node& node_;
  const Options& options_;
  Socket* socket_ = nullptr;
  std::atomic<bool> open_ = false;
  std::atomic<uint64_t> answered_ = 0;
  uint8_t written_ = 0;
};

std::atomic<bool> Flow::ending = false;

struct Counts {
  uint64_t messages = 0;
  uint64_t contended = 0;
  be::CpuTime cpu;
  Time time{};
};

void measure(const Options& options) {
  std::vector<std::string> arguments = {"--server", "--queue-pairs",
                                        std::to_string(options.queue_pairs), "--threads",
                                        std::to_string(options.threads)};
  if (options.no_domains) arguments.push_back("--no-domains");
  const auto server = need(be::bench::ServerProcess::start(arguments));

  std::vector<std::unique_ptr<Flow>> flows;
  const End end = make_end(options);
  std::istringstream addresses(server->first_line());
  std::vector<Address> remotes;
  for (std::string text; addresses >> text;) remotes.push_back(need(Address::parse(text)));
  for (const Address& remote : remotes) {
    flows.push_back(std::make_unique<Flow>(*end.node, options));
    end.node->connect(remote, {.connect_timeout = kPatience, .transport = {}}, flows.back().get());
  }
  const auto is_open = [](const auto& flow) { return flow->open(); };
  while (!std::all_of(flows.begin(), flows.end(), is_open)) std::this_thread::sleep_for(1ms);
  for (size_t i = 0; i < flows.size(); ++i) {
    end.node->thread_for(remotes[i]).post([flow = flows[i].get()] { flow->start(); });
  }

  const auto count = [&] {
    Counts counts;
    for (const auto& flow : flows) counts.messages += flow->answered();
    counts.contended = end.device->contended_posts();
    counts.cpu = be::this_process_cpu_time() + need(be::process_cpu_time(server->pid()));
    counts.time = be::kernel_world().now();
    return counts;
  };
  const auto duration = std::chrono::duration<double>(options.seconds);
  std::this_thread::sleep_for(duration / 5);  // warm-up
  const Counts before = count();
  std::this_thread::sleep_for(duration);
  const Counts after = count();
  Flow::ending = true;

  const auto messages = static_cast<double>(after.messages - before.messages);
  const double seconds = std::chrono::duration<double>(after.time - before.time).count();
  const double cpu = std::chrono::duration<double>((after.cpu - before.cpu).total()).count();
  const nlohmann::ordered_json json = {
      {"queue_pairs", flows.size()},
      {"threads", options.threads},
      {"thread_domains", !options.no_domains},
      {"messages_per_second", messages / seconds},
      {"contended_posts_per_second",
       static_cast<double>(after.contended - before.contended) / seconds},
      {"cpu_us_per_message", cpu * 1e6 / std::max(1.0, messages)},
  };
  std::printf("%s\n", json.dump().c_str());
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app{"512 B message rate over many queue pairs, softnic with thread domains or without."};
  app.option_defaults()->always_capture_default();
  app.add_option("--queue-pairs", options.queue_pairs, "engines")->check(CLI::Range(1, 1024));
  app.add_option("--threads", options.threads, "I/O threads of each end")->check(CLI::Range(1, 64));
  app.add_option("--outstanding", options.outstanding,
                 "messages without a reply of each queue pair")
      ->check(CLI::Range(1, 1024));
  app.add_option("--seconds", options.seconds, "measured time")->check(CLI::Range(0.001, 3600.0));
  app.add_flag("--no-domains", options.no_domains, "no thread domains: posting takes shared locks");
  app.add_flag("--server", options.server)->group("");
  CLI11_PARSE(app, argc, argv);
  if (options.server) serve(options);
  measure(options);
  return 0;
}
