#include "apps/settings.h"

#include <unistd.h>

namespace be::apps {
namespace {

template <typename T>
Range<T> between(T min, T max) {
  return {min, max};
}

template <typename T>
Range<T> zero_or(T min, T max) {
  return {min, max, true};
}

}  // namespace

Settings::Settings() {
  config_.section("memory")
      .bytes("block_size_bytes", &node.memory.block_bytes, between<size_t>(64 << 10, 1 << 30),
             "block of registered memory: one region a device (a power of two)")
      .bytes("cap_bytes", &node.memory.cap_bytes, zero_or<size_t>(1 << 20, size_t{1} << 44),
             "most registered memory of this process; 0: a quarter of RAM")
      .bytes("kept_bytes", &node.memory.kept_bytes, zero_or<size_t>(1 << 20, size_t{1} << 44),
             "free memory that stays registered however long it is not needed")
      .duration("release_interval", &node.memory_release_interval, {1s, 1h},
                "free memory above kept_bytes that was not needed for so long is given back")
      .choice("huge_pages", &node.memory.huge_pages,
              {{"off", HugePages::kOff},
               {"transparent", HugePages::kTransparent},
               {"reserved", HugePages::kReserved}},
              "transparent: where the kernel gives them; reserved: only from vm.nr_hugepages")
      .choice(
          "guard", &node.memory.guard,
          {{"off", GuardMode::kOff}, {"report", GuardMode::kReport}, {"abort", GuardMode::kAbort}},
          "debugging: names every misuse of registered memory, and may abort at it; slow");
  declare_transport();
  declare_engine();
  config_.section("softnic")
      .rate("link_rate", &node.softnic.link_bits_per_second,
            zero_or(kMinLinkRate, uint64_t{10'000'000'000'000}),
            "softnic sends no faster than a NIC on such a link; 0: as fast as it can")
      .duration("completion_delay", &node.softnic.completion_delay, {0ns, kMaxCompletionDelay},
                "softnic holds completions of sends back for so long");
  declare_hardware();
  declare_rpc();
  config_.section("ps")
      .integer("push_threads", &server.push_threads, {1, 256},
               "server threads that apply pushes; each owns some virtual shards")
      .integer("max_tables", &server.max_tables, between<size_t>(1, 1 << 20), "tables of a server")
      .integer("max_keys", &server.limits.max_keys, between<uint32_t>(1, 1u << 28),
               "keys of one Fetch or Push to one server")
      .bytes("max_bytes", &server.limits.max_bytes, between<size_t>(1 << 10, size_t{1} << 30),
             "bytes of one Fetch or Push to or from one server");
  config_.add_profile("paper", {{"memory.block_size_bytes", "4MiB"},
                                {"engine.send_queue_depth", "32"},
                                {"rpc.connect_timeout", "10ms"},
                                {"rpc.request_timeout", "40ms"}});
  for (const char* name : {"BE_CACHE", "BE_TEST_ASAN"}) {
    config_.allow_environment(name);
  }
}

void Settings::declare_transport() {
  config_.section("transport")
      .choice("choice", &node.transport,
              {{"auto", TransportChoice::kAuto},
               {"rdma", TransportChoice::kRdma},
               {"softnic", TransportChoice::kSoftnic},
               {"tcp", TransportChoice::kTcp}},
              "auto: softnic on one host, else an RDMA device, else TCP")
      .secret("secret", &node.secret, "shared secret that both ends prove; unset: no proof")
      .integer("io_threads", &node.io_threads, between<size_t>(1, 256), "I/O threads of a server")
      .duration("spin", &node.spin, {0ns, 1s}, "yield this long without work before sleeping")
      .boolean("spin_forever", &node.spin_forever, "I/O threads never sleep")
      .duration("handshake_timeout", &node.handshake_timeout, {10ms, 10min},
                "a peer that does not finish its handshake by then is dropped")
      .bytes("max_message_bytes", &node.max_message_bytes, between<uint32_t>(4096, 1u << 31),
             "a longer message ends its connection");
}

void Settings::declare_engine() {
  EngineOptions& engine = node.engine;
  config_.section("engine")
      .integer("send_queue_depth", &engine.send_queue_depth, between<uint32_t>(4, 1 << 14),
               "work requests in flight on one queue pair")
      .integer("recv_queue_depth", &engine.recv_queue_depth, between<uint32_t>(2, 1 << 14),
               "receives for messages of the peer (d)")
      .integer("grants", &engine.grants, between<uint32_t>(2, 4096),
               "large messages that the peer may be writing at once (g)")
      .integer("write_requests", &engine.write_requests, between<uint32_t>(2, 4096),
               "large messages of ours that wait for a grant (w)")
      .integer("grant_cancels", &engine.grant_cancels, between<uint32_t>(1, 4096),
               "unanswered cancellations of grants (c)")
      .bytes("eager_bytes", &engine.eager_bytes, between<uint32_t>(256, 1 << 20),
             "largest message that goes as one SEND, engine header included")
      .bytes("fragment_bytes", &engine.fragment_bytes, zero_or<uint32_t>(256, 1 << 28),
             "one WRITE of a large message (S); 0: by the device")
      .bytes("send_window_bytes", &engine.send_window_bytes, zero_or<uint32_t>(256, 1u << 31),
             "bytes posted and not completed (Cwnd); 0: no bound")
      .bytes("grant_budget_bytes", &engine.grant_budget_bytes, between<uint32_t>(4096, 1u << 31),
             "buffers granted to one peer at once")
      .integer("shared_receives", &engine.shared_receives, zero_or<uint32_t>(8, 1 << 16),
               "receives that all engines of an I/O thread share (SRQ); 0: each has its own")
      .duration("keepalive_interval", &engine.keepalive_interval, {10ms, 1h},
                "between two signs of life")
      .duration("keepalive_timeout", &engine.keepalive_timeout, {20ms, 24h},
                "a peer silent for so long is dead");
}

void Settings::declare_hardware() {
  HardwareOptions& hardware = node.hardware;
  config_.section("hardware")
      .duration("ack_timeout", &hardware.ack_timeout, {8us, 1h},
                "RNIC: without an acknowledgement for so long, packets go again")
      .integer("retry_count", &hardware.retry_count, between<uint8_t>(0, 7),
               "RNIC: so often, then the peer is out of reach (7: for ever on Soft-RoCE)")
      .integer("traffic_class", &hardware.traffic_class, between<uint8_t>(0, 255),
               "RoCE: traffic class of packets, DSCP in the upper six bits")
      .integer("service_level", &hardware.service_level, between<uint8_t>(0, 7),
               "InfiniBand service level; on RoCE the priority in VLANs")
      .boolean("relaxed_ordering", &hardware.relaxed_ordering,
               "RNIC: writes into registered memory may overtake each other on PCIe, where it can")
      .boolean("spread_lag_ports", &hardware.spread_lag_ports,
               "bonded mlx5: each queue pair sends through the port that has the fewest");
}

void Settings::declare_rpc() {
  config_.section("rpc")
      .duration("connect_timeout", &channel.connect_timeout, {1ms, 10min}, "for connecting (Tc)")
      .duration("request_timeout", &channel.request_timeout, {1ms, 1h}, "for an answer (Tr)")
      .bytes("bulk_bytes", &channel.bulk_bytes, between<size_t>(256, size_t{1} << 30),
             "longer messages use a socket of their own and never delay small ones")
      .integer("max_outstanding", &channel.max_outstanding, between<uint32_t>(1, 1 << 20),
               "calls of one channel at once; more fail")
      .integer("worker_threads", &server.rpc.worker_threads, {1, 256},
               "server threads for calls that do not run on an I/O thread")
      .integer("max_in_progress", &server.rpc.max_in_progress, between<uint32_t>(1, 1 << 20),
               "calls inside a server at once; more are refused");
}

void Settings::add_options(CLI::App& command) {
  command.add_option("--transport", transport_, "auto, rdma, softnic or tcp (default: auto)")
      ->check(CLI::IsMember({"auto", "rdma", "softnic", "tcp"}))
      ->type_name("NAME");
  command
      .add_option("--config", file_,
                  "TOML file of settings; `byteexpress config` shows all of them")
      ->type_name("FILE");
  command.add_option("--set", sets_, "one setting, e.g. --set memory.cap_bytes=256MiB; repeatable")
      ->type_name("KEY=VALUE")
      ->always_capture_default(false)
      ->allow_extra_args(false);
}

Status Settings::load() {
  if (!file_.empty()) BE_RETURN_IF_ERROR(config_.use_file(file_));
  BE_RETURN_IF_ERROR(config_.use_environment(environ));
  for (const std::string& set : sets_) {
    const size_t equals = set.find('=');
    if (equals == std::string::npos) {
      return error(Code::kInvalidArgument, "--set {}: KEY=VALUE is needed", set);
    }
    BE_RETURN_IF_ERROR(config_.set(set.substr(0, equals), set.substr(equals + 1), "--set"));
  }
  if (!transport_.empty()) {
    BE_RETURN_IF_ERROR(config_.set("transport.choice", transport_, "--transport"));
  }
  return node.engine.check();
}

std::vector<std::string> Settings::forwarded() const {
  std::vector<std::string> arguments;
  if (!file_.empty()) arguments.insert(arguments.end(), {"--config", file_});
  for (const std::string& set : sets_) arguments.insert(arguments.end(), {"--set", set});
  return arguments;
}

}  // namespace be::apps
