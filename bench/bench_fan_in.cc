// Fan-in: one client asks several server processes at once and waits for all of their replies, as a
// ranker does that reads one batch's parameters from every shard. Raw RPC, default waiting, softnic
// and TCP alternating; every figure is the median over the repetitions.
//
//   time of one round: from before the first call to the last reply
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "be/base/cpu_time.h"
#include "be/base/histogram.h"
#include "be/rpc/channel.h"
#include "be/rpc/server.h"
#include "bench/common/bench_node.h"
#include "bench/common/need.h"
#include "bench/common/server_process.h"

namespace {

using namespace std::chrono_literals;
using be::Buffer;
using be::Nanoseconds;
using be::Node;
using be::Result;
using be::Time;
using be::bench::make_node;
using be::bench::need;
using be::bench::ServerProcess;

constexpr size_t kRequestBytes = 32;
const be::rpc::MethodId kMethod = be::rpc::method_id("bench.Fetch");

struct Options {
  std::vector<std::string> transports = {"softnic", "tcp"};
  size_t servers = 4;
  size_t reply_bytes = 20480;
  int repetitions = 3;
  double seconds = 1;
  bool server = false;
};

struct Figures {
  double mean_us = 0;
  double p99_us = 0;
  double cpu_us = 0;  // user + system of one round, all processes
};

// Until it is killed.
[[noreturn]] void serve(const std::string& transport, size_t reply_bytes) {
  const auto node = make_node(transport, /*driven=*/false, /*polling=*/false);
  const auto server = need(be::rpc::Server::create(*node, {}));
  need(server->add_method("bench.Fetch", be::rpc::RunOn::kIoThread, [&](be::rpc::ServerCall call) {
    Result<Buffer> reply = node->pool().allocate_buffer(reply_bytes);
    if (!reply.ok()) return call.fail(reply.status());
    std::memset(reply->data(), 1, reply_bytes);
    call.reply({std::move(reply).value(), {}});
  }));
  need(server->listen(need(be::Address::parse("127.0.0.1:0"))));
  std::printf("%s\n", server->address().to_string().c_str());
  std::fflush(stdout);
  for (;;) pause();
}

class Client {
 public:
  Client(const std::string& transport, const Options& options)
      : options_(options), node_(make_node(transport, /*driven=*/true, /*polling=*/false)) {
    for (size_t i = 0; i < options.servers; ++i) {
      servers_.push_back(
          need(ServerProcess::start({"--server", "--transports", transport, "--reply-bytes",
                                     std::to_string(options.reply_bytes)})));
      channels_.push_back(be::rpc::Channel::create(
          *node_, need(be::Address::parse(servers_.back()->first_line())), {}));
    }
  }

  Figures measure() {
    const Nanoseconds duration(static_cast<int64_t>(options_.seconds * 1e9));
    be::Histogram warm_up;
    repeat(duration / 5, warm_up);
    be::Histogram times;
    const be::CpuTime before = cpu();
    repeat(duration, times);
    const auto spent = static_cast<double>((cpu() - before).total().count());
    return {.mean_us = times.mean() / 1e3,
            .p99_us = static_cast<double>(times.percentile(0.99)) / 1e3,
            .cpu_us = spent / 1e3 / static_cast<double>(times.count())};
  }

 private:
  void repeat(Nanoseconds duration, be::Histogram& times) {
    be::World& world = node_->world();
    Time begin = world.now();
    const Time end = begin + duration;
    do {
      size_t left = channels_.size();
      for (const auto& channel : channels_) {
        channel->call(kMethod, {need(node_->pool().allocate_buffer(kRequestBytes)), {}},
                      {.timeout = 10s}, [&](Result<be::rpc::Payload> answer) {
                        need(answer.status());
                        --left;
                      });
      }
      node_->thread(0).run_until([&] { return left == 0; }, be::kNever);
      const Time now = world.now();
      times.record(static_cast<uint64_t>((now - begin).count()));
      begin = now;
    } while (begin < end);
  }

  be::CpuTime cpu() const {
    be::CpuTime sum = be::this_process_cpu_time();
    for (const auto& server : servers_) sum = sum + need(be::process_cpu_time(server->pid()));
    return sum;
  }

  const Options& options_;
  const std::unique_ptr<Node> node_;
  std::vector<std::unique_ptr<ServerProcess>> servers_;
  std::vector<std::unique_ptr<be::rpc::Channel>> channels_;
};

double median(const std::vector<Figures>& all, double Figures::*figure) {
  std::vector<double> values;
  for (const Figures& figures : all) values.push_back(figures.*figure);
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

void run(const Options& options) {
  std::map<std::string, std::vector<Figures>> measured;
  for (int repetition = 0; repetition < options.repetitions; ++repetition) {
    for (const std::string& transport : options.transports) {
      std::fprintf(stderr, "repetition %d of %d: %s\n", repetition + 1, options.repetitions,
                   transport.c_str());
      measured[transport].push_back(Client(transport, options).measure());
    }
  }
  std::printf("%zu servers, replies of %zu bytes\n%10s %9s %9s %9s  [us a round]\n",
              options.servers, options.reply_bytes, "", "mean", "P99", "CPU");
  for (const std::string& transport : options.transports) {
    const auto& all = measured[transport];
    std::printf("%10s %9.2f %9.2f %9.2f\n", transport.c_str(), median(all, &Figures::mean_us),
                median(all, &Figures::p99_us), median(all, &Figures::cpu_us));
  }
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app{"One client asks several server processes at once: time until all have answered."};
  app.add_option("--transports", options.transports, "Which, in this order")
      ->check(CLI::IsMember({"softnic", "tcp"}))
      ->capture_default_str();
  app.add_option("--servers", options.servers, "Server processes")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  app.add_option("--reply-bytes", options.reply_bytes, "Size of each reply")
      ->check(CLI::Range(size_t{1}, size_t{64} << 20))
      ->capture_default_str();
  app.add_option("--repetitions", options.repetitions, "Medians are taken over these")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_option("--seconds", options.seconds, "For one repetition")
      ->check(CLI::Range(0.001, 3600.0))
      ->capture_default_str();
  app.add_flag("--server", options.server)->group("");
  CLI11_PARSE(app, argc, argv);
  if (options.server) serve(options.transports.at(0), options.reply_bytes);
  run(options);
  return 0;
}
