// Raw RPC between two processes: N-byte request, 32-byte reply, one outstanding, payloads
// rewritten by the client and read by the server. Softnic and TCP side by side in one run.
//
//   polling   both ends are driven and never sleep
//   default   default waiting: the server's I/O thread yields, then sleeps, and so does the client
//
// The client drives its node in both. Transports alternate within each repetition, so that a
// disturbance of the machine meets both; every figure is the median over the repetitions.
// The method is that of the peers in PEERS.md (TOUCH=1).
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <tuple>
#include <vector>

#include "be/base/cpu_time.h"
#include "be/base/histogram.h"
#include "be/rpc/channel.h"
#include "be/rpc/server.h"
#include "bench/common/bench_node.h"
#include "bench/common/need.h"
#include "bench/common/server_process.h"
#include "bench/common/touch.h"

namespace {

using namespace std::chrono_literals;
using be::Buffer;
using be::Nanoseconds;
using be::Node;
using be::Result;
using be::Status;
using be::Time;
using be::bench::die;
using be::bench::make_node;
using be::bench::need;

constexpr size_t kReplyBytes = 32;
const be::rpc::MethodId kMethod = be::rpc::method_id("bench.Touch");

struct Options {
  std::vector<std::string> transports = {"softnic", "tcp"};
  std::vector<std::string> modes = {"polling", "default"};
  std::vector<size_t> sizes = {32, 128, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20};
  int repetitions = 3;
  double seconds = 0.5;  // one size of one repetition
  bool quick = false;
  std::string json;
  bool server = false;
};

// Medians of these are reported.
struct Figures {
  double mean_us = 0;
  double p50_us = 0;
  double p99_us = 0;
  double cpu_us_per_op = 0;  // user + system, both processes
  double ops = 0;
};

using Key = std::tuple<std::string, std::string, size_t>;  // transport, mode, size
using Measured = std::map<Key, std::vector<Figures>>;

// Until it is killed.
[[noreturn]] void serve(const std::string& transport, const std::string& mode) {
  const bool polling = mode == "polling";
  const auto node = make_node(transport, /*driven=*/polling, polling);
  const auto server = need(be::rpc::Server::create(*node, {}));
  uint64_t sum = 0;
  need(server->add_method("bench.Touch", be::rpc::RunOn::kIoThread, [&](be::rpc::ServerCall call) {
    sum += be::bench::read_all(call.body().data(), call.body().size());
    Result<Buffer> reply = node->pool().allocate_buffer(kReplyBytes);
    if (!reply.ok()) return call.fail(reply.status());
    std::memset(reply->data(), static_cast<int>(sum), kReplyBytes);
    call.reply({std::move(reply).value(), {}});
  }));
  need(server->listen(need(be::Address::parse("127.0.0.1:0"))));
  std::printf("%s\n", server->address().to_string().c_str());
  std::fflush(stdout);
  if (polling) node->thread(0).run_until([] { return false; }, be::kNever, true);
  for (;;) pause();
}

class Client {
 public:
  Client(const std::string& transport, const std::string& mode, const be::Address& server,
         pid_t server_pid)
      : node_(make_node(transport, /*driven=*/true, mode == "polling")),
        channel_(be::rpc::Channel::create(*node_, server, {})),
        server_pid_(server_pid) {}

  Figures measure(size_t size, Nanoseconds duration) {
    be::Histogram warm_up;
    repeat(size, duration / 5, warm_up);
    be::Histogram times;
    const be::CpuTime before = cpu();
    repeat(size, duration, times);
    const be::CpuTime spent = cpu() - before;
    const double ops = static_cast<double>(times.count());
    return {.mean_us = times.mean() / 1e3,
            .p50_us = static_cast<double>(times.percentile(0.50)) / 1e3,
            .p99_us = static_cast<double>(times.percentile(0.99)) / 1e3,
            .cpu_us_per_op = static_cast<double>(spent.total().count()) / 1e3 / ops,
            .ops = ops};
  }

 private:
  void repeat(size_t size, Nanoseconds duration, be::Histogram& times) {
    be::World& world = node_->world();
    Time begin = world.now();
    const Time end = begin + duration;
    do {
      Buffer request = need(node_->pool().allocate_buffer(size));
      be::bench::rewrite(request.data(), size);
      const auto answer =
          channel_->call_and_wait(kMethod, {std::move(request), {}}, {.timeout = 10s});
      if (!answer.ok()) die(answer.status());
      const Time now = world.now();
      times.record(static_cast<uint64_t>((now - begin).count()));
      begin = now;
    } while (begin < end);
  }

  be::CpuTime cpu() const {
    return be::this_process_cpu_time() + need(be::process_cpu_time(server_pid_));
  }

  const std::unique_ptr<Node> node_;
  const std::unique_ptr<be::rpc::Channel> channel_;
  const pid_t server_pid_;
};

Measured measure_all(const Options& options) {
  Measured measured;
  const Nanoseconds duration(static_cast<int64_t>(options.seconds * 1e9));
  for (int repetition = 0; repetition < options.repetitions; ++repetition) {
    for (const std::string& mode : options.modes) {
      for (const std::string& transport : options.transports) {
        std::fprintf(stderr, "repetition %d of %d: %s, %s\n", repetition + 1, options.repetitions,
                     mode.c_str(), transport.c_str());
        const auto server = need(be::bench::ServerProcess::start(
            {"--server", "--transports", transport, "--modes", mode}));
        Client client(transport, mode, need(be::Address::parse(server->first_line())),
                      server->pid());
        for (const size_t size : options.sizes) {
          measured[{transport, mode, size}].push_back(client.measure(size, duration));
        }
      }
    }
  }
  return measured;
}

Figures median(const std::vector<Figures>& repetitions) {
  const auto of = [&](double Figures::*figure) {
    std::vector<double> values;
    for (const Figures& figures : repetitions) values.push_back(figures.*figure);
    std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
    return values[values.size() / 2];
  };
  return {of(&Figures::mean_us), of(&Figures::p50_us), of(&Figures::p99_us),
          of(&Figures::cpu_us_per_op), of(&Figures::ops)};
}

void report(const Options& options, const Measured& measured) {
  nlohmann::ordered_json json;
  for (const std::string& mode : options.modes) {
    std::printf("\n%s\n%9s", mode.c_str(), "bytes");
    for (const std::string& transport : options.transports) {
      std::printf("  %8s mean     P50     P99 CPU/op", transport.c_str());
    }
    std::printf("  [us]  %s\n", options.transports.size() == 2 ? "mean: first/second" : "");
    for (const size_t size : options.sizes) {
      std::printf("%9zu", size);
      std::vector<double> means;
      for (const std::string& transport : options.transports) {
        const Figures figures = median(measured.at({transport, mode, size}));
        std::printf("  %13.2f %7.2f %7.2f %6.2f", figures.mean_us, figures.p50_us, figures.p99_us,
                    figures.cpu_us_per_op);
        auto& entry = json[transport][mode][std::to_string(size)];
        entry["mean_us"] = figures.mean_us;
        entry["p50_us"] = figures.p50_us;
        entry["p99_us"] = figures.p99_us;
        entry["cpu_us_per_op"] = figures.cpu_us_per_op;
        entry["ops"] = figures.ops;
        means.push_back(figures.mean_us);
      }
      if (means.size() == 2) {
        std::printf("        %.3f", means[0] / means[1]);
        json["mean_ratio"][mode][std::to_string(size)] = means[0] / means[1];
      }
      std::printf("\n");
    }
  }
  if (options.json.empty()) return;
  std::ofstream file(options.json);
  file << json.dump(2) << "\n";
  file.close();
  if (!file) die(be::error(be::Code::kInvalidArgument, "cannot write {}", options.json));
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app{"Raw RPC latency between two processes: softnic beside TCP, polling and default."};
  app.add_option("--transports", options.transports, "Which, in this order")
      ->check(CLI::IsMember({"softnic", "tcp"}))
      ->capture_default_str();
  app.add_option("--modes", options.modes, "Which ways of waiting")
      ->check(CLI::IsMember({"polling", "default"}))
      ->capture_default_str();
  app.add_option("--sizes", options.sizes, "Request bytes")
      ->check(CLI::Range(size_t{1}, size_t{64} << 20))
      ->capture_default_str();
  app.add_option("--repetitions", options.repetitions, "Medians are taken over these")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_option("--seconds", options.seconds, "For one size in one repetition")
      ->check(CLI::Range(0.001, 3600.0))
      ->capture_default_str();
  app.add_flag("--quick", options.quick, "Ends within 30 seconds (--seconds 0.12)");
  app.add_option("--json", options.json, "Also write the figures to this file");
  app.add_flag("--server", options.server)->group("");
  CLI11_PARSE(app, argc, argv);
  if (options.quick) options.seconds = 0.12;
  if (options.server) serve(options.transports.at(0), options.modes.at(0));
  report(options, measure_all(options));
  return 0;
}
