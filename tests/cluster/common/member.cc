#include "tests/cluster/common/member.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <utility>

#include "be/base/hash.h"
#include "be/base/world.h"
#include "be/softnic/softnic_device.h"

namespace be::cluster {
namespace {

constexpr size_t kMaxComplaints = 10;
constexpr Nanoseconds kPauseAfterFailure = 3ms;
constexpr Nanoseconds kLook = 10ms;
constexpr uint64_t kCallsPerChannel = 24;

// In a peer there is no test to fail; its end is what is seen.
template <typename T>
T take(Result<T> result) {
  if (result.ok()) return std::move(result).value();
  std::fprintf(stderr, "%s\n", result.status().to_string().c_str());
  std::abort();
}

void write_pattern(uint8_t* bytes, size_t size, uint64_t seed) {
  for (size_t i = 0; i < size; i += 8) {
    const uint64_t word = mix64(seed, i);
    std::memcpy(bytes + i, &word, std::min<size_t>(8, size - i));
  }
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const ResourceUse& use) {
  return out << fmt::format(
             "{} QPs, {} MRs, {} descriptors, {} mappings, {} bytes in {} allocations",
             use.queue_pairs, use.regions, use.descriptors, use.mappings, use.live_bytes,
             use.allocations);
}

NodeOptions member_options() {
  NodeOptions options;
  options.driven = true;
  options.memory.cap_bytes = size_t{64} << 20;
  return options;
}

Member::Member(const NodeOptions& options,
               const std::function<void(Member&, rpc::Server&)>& add_methods) {
  std::vector<std::unique_ptr<Device>> devices;
  devices.push_back(take(open_softnic({})));
  device_ = static_cast<softnic::SoftnicDevice*>(devices.back().get());
  node_ = take(Node::create(kernel_world(), options, std::move(devices)));
  server_ = take(rpc::Server::create(*node_, {}));
  server_
      ->add_method(kEcho, rpc::RunOn::kIoThread,
                   [this](rpc::ServerCall call) {
                     ++served_;
                     call.reply({std::move(call.body()), {}});
                   })
      .ignore();
  if (add_methods) add_methods(*this, *server_);
  const Status listening = server_->listen(take(Address::parse("127.0.0.1:0")));
  if (!listening.ok()) take(Result<int>(listening));
}

Member::~Member() {
  server_.reset();
  node_.reset();
}

bool Member::drive(const std::function<bool()>& done, Nanoseconds patience) {
  const auto step = [&] {
    for (Traffic* traffic : traffic_) traffic->step();
    return done();
  };
  // It sleeps until something happens to the node, and `done` may be about something else.
  const Time end = now() + patience;
  for (;;) {
    const Time until = std::min(end, now() + kLook);
    if (node_->thread(0).run_until(step, until)) return true;
    if (until == end) return false;
  }
}

std::string Member::line_of(apps::ChildProcess& process, Nanoseconds patience) {
  std::optional<std::string> line;
  drive(
      [&] {
        process.read_output();
        return (line = process.next_line()).has_value();
      },
      patience);
  return line.value_or("");
}

ResourceUse Member::use() {
  ResourceUse use;
  const PoolStats stats = pool().stats();
  const softnic::SoftnicDevice::Usage device = device_->usage();
  use.queue_pairs = device.queue_pairs;
  use.regions = device.regions - static_cast<uint32_t>(stats.registrations - stats.deregistrations);
  const std::filesystem::directory_iterator descriptors("/proc/self/fd");
  use.descriptors = static_cast<size_t>(std::distance(begin(descriptors), end(descriptors)));
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    use.mappings += line.find("/memfd:") != std::string::npos;
  }
  use.live_bytes = stats.live_bytes;
  use.allocations = stats.allocations;
  return use;
}

Buffer patterned(RegisteredPool& pool, size_t size, uint64_t seed) {
  Buffer buffer = take(pool.allocate_buffer(size));
  write_pattern(buffer.data(), size, seed);
  return buffer;
}

Buffer patterned_adopted(RegisteredPool& pool, size_t size, uint64_t seed) {
  auto memory = std::make_shared<std::vector<uint8_t>>(size);
  write_pattern(memory->data(), size, seed);
  return take(pool.adopt(memory->data(), size, [memory] {}));
}

bool has_pattern(const Buffer& buffer, size_t size, uint64_t seed) {
  if (buffer.size() != size) return false;
  for (size_t i = 0; i < size; i += 8) {
    const uint64_t word = mix64(seed, i);
    if (std::memcmp(buffer.data() + i, &word, std::min<size_t>(8, size - i)) != 0) return false;
  }
  return true;
}

Traffic::Traffic(Member& member, const Address& server, const Options& options)
    : member_(member), server_(server), options_(options) {
  member_.traffic_.push_back(this);
}

Traffic::~Traffic() {
  std::erase(member_.traffic_, this);
  paused_ = true;
  channel_.reset();  // ends its calls
  tcp_channel_.reset();
}

void Traffic::disconnect() {
  channel_.reset();
  tcp_channel_.reset();
}

void Traffic::step() {
  while (!paused_ && outstanding_ < options_.outstanding && member_.now() >= not_before_) {
    if (begun_ % kCallsPerChannel == 0 || channel_ == nullptr) {
      if (outstanding_ > 0) return;  // those end first: this is not what is tested here
      disconnect();
      rpc::ChannelOptions options;
      options.connect_timeout = options_.connect_timeout;
      options.request_timeout = options_.call_timeout;
      channel_ = rpc::Channel::create(member_.node(), server_, options);
      options.transport = TransportChoice::kTcp;
      tcp_channel_ = rpc::Channel::create(member_.node(), server_, options);
    }
    begin(static_cast<Kind>(begun_ % static_cast<uint64_t>(Kind::kCount)));
  }
}

void Traffic::begin(Kind kind) {
  static constexpr size_t kSizes[] = {32, 4096, 4096, 1000, 200'000, 3000};
  const size_t size = kSizes[static_cast<size_t>(kind)];
  const uint64_t seed = ++begun_;
  rpc::Payload request;
  request.body = kind == Kind::kStaged ? patterned_adopted(member_.pool(), size, seed)
                                       : patterned(member_.pool(), size, seed);
  ++outstanding_;
  rpc::Channel& channel = kind == Kind::kTcp ? *tcp_channel_ : *channel_;
  channel.call(
      rpc::method_id(kEcho), std::move(request), {},
      [this, kind, size, seed, begun = member_.now(), kept = member_.kept_from_us()](
          const Result<rpc::Payload>& answer) { end(kind, size, seed, begun, kept, answer); });
}

void Traffic::end(Kind kind, size_t size, uint64_t seed, Time begun, Nanoseconds kept,
                  const Result<rpc::Payload>& answer) {
  --outstanding_;
  const Nanoseconds took = member_.now() - begun;
  const Nanoseconds forgiven = member_.kept_from_us() - kept;
  if (options_.punctual && took > options_.call_timeout + kSlack + forgiven) {
    complain(fmt::format("a call of kind {} took {} ms: {}", static_cast<int>(kind), took / 1ms,
                         answer.status().to_string()));
  }
  if (answer.ok()) {
    if (has_pattern(answer->body, size, seed)) {
      ++succeeded_;
    } else {
      complain(fmt::format("a call of kind {} has another answer", static_cast<int>(kind)));
    }
    return;
  }
  ++failed_;
  last_failure_ = answer.status();
  not_before_ = member_.now() + kPauseAfterFailure;
  if (options_.must_succeed && answer.status().code() != Code::kCancelled) {
    complain(answer.status().to_string());
  }
}

void Traffic::complain(std::string text) {
  if (complaints_.size() < kMaxComplaints) complaints_.push_back(std::move(text));
}

}  // namespace be::cluster
