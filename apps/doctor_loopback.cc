#include "apps/doctor_loopback.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "be/base/histogram.h"
#include "be/rpc/channel.h"
#include "be/rpc/server.h"
#include "be/softnic/softnic_device.h"
#include "be/verbs/hardware_device.h"

namespace be::apps::doctor {
namespace {

constexpr Nanoseconds kPatience = 10s;
constexpr Nanoseconds kTimed = 200ms;
constexpr uint64_t kMostRoundTrips = 2000;
constexpr uint64_t kWarmUp = 20;
constexpr size_t kSmallBytes = 32;
constexpr size_t kLargeBytes[] = {1 << 10, 64 << 10, 1 << 20, 1 << 20};
constexpr size_t kMemoryBytes = size_t{64} << 20;
constexpr const char* kMethod = "doctor.Loopback";

Result<std::unique_ptr<Device>> open_device(DeviceKind kind, const std::string& name,
                                            const NodeOptions& options) {
  if (kind == DeviceKind::kSoftnic) return open_softnic(options.softnic);
  for (auto& device : open_hardware_devices(options.hardware, options.memory.cap_bytes)) {
    if (device->name() == name) return std::move(device);
  }
  return error(Code::kNotFound, "device {} can no longer be opened", name);
}

Result<std::unique_ptr<Node>> make_node(DeviceKind kind, const std::string& name,
                                        NodeOptions options) {
  BE_ASSIGN_OR_RETURN(std::unique_ptr<Device> device, open_device(kind, name, options));
  std::vector<std::unique_ptr<Device>> only;
  only.push_back(std::move(device));
  return Node::create(kernel_world(), options, std::move(only));
}

NodeOptions node_options(DeviceKind kind, const NodeOptions& settings) {
  NodeOptions options = settings;
  options.transport =
      kind == DeviceKind::kSoftnic ? TransportChoice::kSoftnic : TransportChoice::kRdma;
  options.io_threads = 1;
  options.handshake_timeout = kPatience;
  options.engine.keepalive_timeout = std::max(options.engine.keepalive_timeout, kPatience);
  if (options.memory.cap_bytes == 0 || options.memory.cap_bytes > kMemoryBytes) {
    options.memory.cap_bytes = kMemoryBytes;
  }
  return options;
}

// Replies are the request's body, its bytes changed: neither end can return its own.
void answer(rpc::ServerCall call) {
  Buffer body = std::move(call.body());
  for (uint8_t& byte : body.bytes()) byte ^= 0xff;
  call.reply({std::move(body), {}});
}

uint8_t pattern(size_t i) { return static_cast<uint8_t>(i * 7 + i / 251); }

Status there_and_back(Node& node, rpc::Channel& channel, size_t bytes) {
  BE_ASSIGN_OR_RETURN(Buffer body, node.pool().allocate_buffer(bytes));
  for (size_t i = 0; i < bytes; ++i) body.data()[i] = pattern(i);
  BE_ASSIGN_OR_RETURN(const rpc::Payload reply,
                      channel.call_and_wait(rpc::method_id(kMethod), {std::move(body), {}}, {}));
  if (reply.body.size() != bytes) {
    return error(Code::kDataLoss, "of {} bytes {} came back", bytes, reply.body.size());
  }
  for (size_t i = 0; i < bytes; ++i) {
    if (reply.body.data()[i] != (pattern(i) ^ 0xff)) {
      return error(Code::kDataLoss, "byte {} of {} was changed on the way", i, bytes);
    }
  }
  return ok_status();
}

Result<Loopback> measure(Node& node, rpc::Channel& channel) {
  Loopback result;
  Histogram times;
  for (uint64_t i = 0; i < kWarmUp; ++i) {
    BE_RETURN_IF_ERROR(there_and_back(node, channel, kSmallBytes));
  }
  const Time begin = node.world().now();
  Time now = begin;
  while (times.count() < kMostRoundTrips && now < begin + kTimed) {
    BE_RETURN_IF_ERROR(there_and_back(node, channel, kSmallBytes));
    const Time before = std::exchange(now, node.world().now());
    times.record(static_cast<uint64_t>((now - before).count()));
  }
  for (const size_t bytes : kLargeBytes) {
    BE_RETURN_IF_ERROR(there_and_back(node, channel, bytes));
    result.bytes += bytes;
  }
  result.round_trips = times.count();
  result.p50_us = static_cast<double>(times.percentile(0.5)) / 1e3;
  result.p99_us = static_cast<double>(times.percentile(0.99)) / 1e3;
  return result;
}

}  // namespace

Result<Loopback> run_loopback(DeviceKind kind, const std::string& device,
                              const NodeOptions& settings) {
  NodeOptions options = node_options(kind, settings);
  BE_ASSIGN_OR_RETURN(const auto server_node, make_node(kind, device, options));
  BE_ASSIGN_OR_RETURN(const auto server, rpc::Server::create(*server_node, {}));
  BE_RETURN_IF_ERROR(server->add_method(kMethod, rpc::RunOn::kIoThread, answer));
  BE_ASSIGN_OR_RETURN(const Address loopback, Address::parse("127.0.0.1:0"));
  BE_RETURN_IF_ERROR(server->listen(loopback));
  options.driven = true;  // no other thread stands between the call and its answer
  BE_ASSIGN_OR_RETURN(const auto client_node, make_node(kind, device, options));
  const auto channel =
      rpc::Channel::create(*client_node, server->address(),
                           {.connect_timeout = kPatience, .request_timeout = kPatience});
  return measure(*client_node, *channel);
}

}  // namespace be::apps::doctor
