#include "be/sim/knobs.h"

#include <algorithm>

#include "be/engine/engine.h"

namespace be::sim {
namespace {

constexpr uint64_t kBlock = 64 << 10;
constexpr uint64_t kRoomyCap = uint64_t{64} << 20;

FabricOptions draw_fabric(Random& random) {
  FabricOptions fabric;
  fabric.touch = random.one_in(2) ? Touch::kByNic : Touch::kByPeer;
  fabric.mtu = random.pick({256u, 1024u, 4096u});
  fabric.latency = random.between(500ns, 20us);
  fabric.jitter = random.one_in(2) ? 0ns : random.between(0ns, 50us);
  fabric.picoseconds_per_byte = random.pick({80u, 320u, 8000u});
  fabric.completion_delay = random.one_in(2) ? 0ns : random.between(0ns, 200us);
  fabric.inline_bytes = random.pick({0u, 64u, 200u});
  return fabric;
}

EngineOptions draw_engine(Random& random) {
  EngineOptions engine;
  engine.send_queue_depth = static_cast<uint32_t>(random.spread(2, 64));
  engine.recv_queue_depth = static_cast<uint32_t>(random.spread(2, 64));
  engine.grants = static_cast<uint32_t>(random.spread(2, 16));
  engine.write_requests = static_cast<uint32_t>(random.spread(2, 16));
  engine.grant_cancels = static_cast<uint32_t>(random.spread(1, 4));
  engine.eager_bytes = static_cast<uint32_t>(random.spread(128, 8192));
  if (!random.one_in(4)) engine.fragment_bytes = static_cast<uint32_t>(random.spread(256, 16384));
  if (random.one_in(2)) {
    const uint32_t fragment = engine.fragment_bytes != 0 ? engine.fragment_bytes : 8192;
    engine.send_window_bytes = fragment * static_cast<uint32_t>(random.spread(1, 8));
  }
  if (random.one_in(2)) {
    engine.grant_budget_bytes = static_cast<uint32_t>(random.spread(1, 256 << 10));
  }
  engine.keepalive_interval = random.pick<Nanoseconds>({5ms, 20ms, 100ms});
  engine.keepalive_timeout = engine.keepalive_interval * static_cast<int>(random.between(4, 10));
  return engine;
}

Work draw_work(Random& random) {
  Work work;
  work.conversations = static_cast<uint32_t>(random.spread(1, 24));
  work.messages =
      static_cast<uint32_t>(random.one_in(2) ? random.spread(1, 60) : random.between(20, 120));
  work.message_bytes = static_cast<uint32_t>(random.spread(64, 96 << 10));
  work.outstanding = static_cast<uint32_t>(random.spread(1, 16));
  work.close_early_one_in = random.one_in(2) ? 0 : random.between(1, 4);
  work.hold_max = random.one_in(2) ? 0ns : random.between(0ns, 5ms);
  work.start_within = random.between(0ns, 20ms);
  work.canaries = static_cast<uint32_t>(random.between(0, 4));
  work.parameter_server = random.one_in(4);
  if (random.one_in(6)) {  // grants that are cancelled while others are given in their slots
    work.conversations = static_cast<uint32_t>(random.between(8, 24));
    work.messages = static_cast<uint32_t>(random.between(10, 40));
    work.message_bytes = static_cast<uint32_t>(random.between(2 << 10, 32 << 10));
    work.outstanding = static_cast<uint32_t>(random.between(4, 16));
    work.close_early_one_in = random.between(1, 2);
    work.parameter_server = false;
  }
  return work;
}

// What is kept registered, with the loss to size classes.
uint64_t receive_memory(const EngineOptions& engine, uint64_t receives) {
  return receives * (engine.eager_bytes + engine.eager_bytes / 4 + 64);
}
uint64_t own_receives(const EngineOptions& engine) {
  return engine.recv_queue_depth + reserved_receives(engine);
}
uint64_t engine_memory(const EngineOptions& engine, uint64_t engines) {
  return engines * (receive_memory(engine, own_receives(engine)) +
                    uint64_t{engine.send_queue_depth} * 128 + 4096);
}

// An SRQ for each I/O thread of a host: for all engines that it can have, for some of them with
// little to spare, or for one. Their memory instead of that of the engines' own receives.
void draw_shared_receives(Random& random, HostKnobs& host, uint64_t hosts) {
  if (!random.one_in(3)) return;
  EngineOptions& engine = host.node.engine;
  uint64_t bytes = host.node.memory.cap_bytes;
  bytes -= receive_memory(engine, 2 * hosts * own_receives(engine));
  engine.shared_receives = 1;  // so that the least of an engine is known
  const uint32_t least = reserved_receives(engine) + initial_credits(engine);
  const uint64_t engines = random.between(1, 2 * hosts);
  const uint64_t most = random.spread(1, 2 * hosts * engine.recv_queue_depth);
  engine.shared_receives = static_cast<uint32_t>(engines * least + random.below(most));
  bytes += receive_memory(engine, host.node.io_threads * engine.shared_receives);
  host.node.memory.cap_bytes = (bytes / kBlock + 1) * kBlock;
}

void draw_faults(Random& random, Knobs& knobs) {
  Nanoseconds slowest = 0ns;  // to notice that a peer is silent
  Nanoseconds fastest = 1h;
  for (const HostKnobs& host : knobs.hosts) {
    const EngineOptions& engine = host.node.engine;
    slowest = std::max({slowest, engine.keepalive_timeout, 3 * engine.keepalive_interval});
    fastest = std::min(fastest, engine.keepalive_timeout);
  }
  for (uint64_t i = random.between(1, 3); i > 0; --i) {
    Fault fault;
    fault.kind = static_cast<Fault::Kind>(random.below(6));
    fault.host = static_cast<uint32_t>(random.below(knobs.hosts.size()));
    fault.when = random.one_in(2) ? Nanoseconds(random.spread(10'000, 60'000'000))
                                  : random.between(1ms, 30ms);
    switch (fault.kind) {
      case Fault::Kind::kPause:
        fault.length = random.between(1us, fastest / 4);
        break;
      case Fault::Kind::kStop:
        fault.length = random.between(fastest / 2, 4 * slowest);
        break;
      case Fault::Kind::kKill:
      case Fault::Kind::kQueuePairs:
        break;
      case Fault::Kind::kKillAndStart:
        fault.length = random.between(1ms, 2 * slowest);
        break;
      case Fault::Kind::kWorkRequest:
        fault.work_requests = random.spread(1, 2000);
        break;
    }
    knobs.faults.push_back(fault);
  }
  std::sort(knobs.faults.begin(), knobs.faults.end(),
            [](const Fault& a, const Fault& b) { return a.when < b.when; });
}

}  // namespace

const char* fault_name(Fault::Kind kind) {
  switch (kind) {
    case Fault::Kind::kPause:
      return "pause";
    case Fault::Kind::kStop:
      return "stop";
    case Fault::Kind::kKill:
      return "kill";
    case Fault::Kind::kKillAndStart:
      return "kill and start";
    case Fault::Kind::kWorkRequest:
      return "work request error";
    case Fault::Kind::kQueuePairs:
      return "queue pairs broken";
  }
  return "unknown fault";
}

Knobs draw_knobs(Random random) {
  Knobs knobs;
  knobs.fabric = draw_fabric(random);
  knobs.stream_latency = random.between(5us, 100us);
  knobs.work = draw_work(random);
  const bool alike = random.one_in(2);  // all hosts with the same engine options
  const EngineOptions common = draw_engine(random);
  const bool scarce = random.one_in(3);
  knobs.refusals_allowed = scarce;

  const bool faults = random.one_in(2);
  if (faults) {  // so that there is something under way when they come
    knobs.work.conversations = std::max(knobs.work.conversations, 4u);
    knobs.work.messages = static_cast<uint32_t>(random.between(50, 250));
    knobs.work.start_within = std::min<Nanoseconds>(knobs.work.start_within, 3ms);
    if (random.one_in(2))
      knobs.work.message_bytes = static_cast<uint32_t>(random.between(16 << 10, 96 << 10));
  }

  const uint64_t hosts = random.between(2, 4);
  for (uint64_t i = 0; i < hosts; ++i) {
    HostKnobs host;
    host.node.engine = alike ? common : draw_engine(random);
    host.node.spin = random.one_in(2) ? 0ns : random.between(0ns, 10us);
    host.node.transport = random.one_in(10) ? TransportChoice::kTcp : TransportChoice::kAuto;
    host.node.io_threads = random.one_in(3) ? 2 : 1;
    host.node.secret = "the cluster's secret";
    host.node.memory.block_bytes = kBlock;
    const uint64_t engines = engine_memory(host.node.engine, 2 * hosts);
    const uint64_t least = engines + 4 * uint64_t{knobs.work.message_bytes} + 8 * kBlock;
    const uint64_t cap = scarce ? least + random.below(least / 2) : least + kRoomyCap;
    host.node.memory.cap_bytes = (cap / kBlock + 1) * kBlock;
    host.node.memory.kept_bytes = random.pick<size_t>({0, 4 * kBlock, 64 << 20});
    host.node.memory_release_interval = random.between(1ms, 1s);
    host.pace.step_min = random.pick<Nanoseconds>({100ns, 300ns});
    host.pace.step_max = random.between(1us, 20us);
    host.pace.task_max = random.between(1us, 200us);
    if (random.one_in(3)) {
      host.pace.late_max = random.between(1us, host.node.engine.keepalive_timeout / 16);
      // Less than a millisecond on average: a connection is to be set up within its timeout.
      host.pace.late_one_in = host.pace.late_max / 1ms + random.between(2, 200);
    }
    knobs.hosts.push_back(host);
  }
  if (faults) draw_faults(random, knobs);
  for (HostKnobs& host : knobs.hosts) draw_shared_receives(random, host, hosts);
  return knobs;
}

std::string Knobs::describe() const {
  std::string text = fmt::format(
      "fabric: {}, mtu {}, latency {} ns, jitter {} ns, {} ps a byte, completions held {} ns, "
      "inline {}\n",
      fabric.touch == Touch::kByNic ? "memory touched by the NIC" : "memory touched by the peer",
      fabric.mtu, fabric.latency.count(), fabric.jitter.count(), fabric.picoseconds_per_byte,
      fabric.completion_delay.count(), fabric.inline_bytes);
  text += fmt::format(
      "work: {}, {} conversations, messages <= {} of <= {} bytes, {} outstanding, early close 1 in "
      "{}, held <= {} ns, canaries {}{}\n",
      work.parameter_server ? "parameter server" : "sockets", work.conversations, work.messages,
      work.message_bytes, work.outstanding, work.close_early_one_in, work.hold_max.count(),
      work.canaries, refusals_allowed ? ", memory scarce" : "");
  for (size_t i = 0; i < hosts.size(); ++i) {
    const EngineOptions& engine = hosts[i].node.engine;
    text += fmt::format(
        "host {}: {}, {} I/O threads, depths {} and {}, shared {}, g {}, w {}, c {}, eager {}, "
        "fragment {}, "
        "window {}, budget "
        "{}, keepalive {}/{} ms, cap {} KiB, steps <= {} ns, late 1 in {} <= {} ns\n",
        i, hosts[i].node.transport == TransportChoice::kTcp ? "tcp" : "auto",
        hosts[i].node.io_threads, engine.send_queue_depth, engine.recv_queue_depth,
        engine.shared_receives, engine.grants, engine.write_requests, engine.grant_cancels,
        engine.eager_bytes, engine.fragment_bytes, engine.send_window_bytes,
        engine.grant_budget_bytes, engine.keepalive_interval / 1ms, engine.keepalive_timeout / 1ms,
        hosts[i].node.memory.cap_bytes >> 10, hosts[i].pace.step_max.count(),
        hosts[i].pace.late_one_in, hosts[i].pace.late_max.count());
  }
  for (const Fault& fault : faults) {
    text +=
        fmt::format("fault at {} ns: {} of host {}, {} ns, work request {}\n", fault.when.count(),
                    fault_name(fault.kind), fault.host, fault.length.count(), fault.work_requests);
  }
  return text;
}

}  // namespace be::sim
