#include "be/sim/application.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "be/base/hash.h"
#include "be/sim/conversation_end.h"

namespace be::sim {
namespace {

constexpr uint16_t kPort = 9000;
constexpr Nanoseconds kConnectTimeout = 2s;
constexpr size_t kGrabbed = 8;  // buffers

}  // namespace

// Buffers with a pattern that are looked at and replaced, by events of their own.
class Application::Canary {
 public:
  Canary(Process& process, uint32_t message_bytes, Random random)
      : process_(process), message_bytes_(message_bytes), random_(random) {}

  void sing() {
    replace(1);
    process_.host->simulation().after(random_.between(10us, 3ms), [self = self_] {
      if (*self != nullptr) (*self)->sing();
    });
  }
  // As long as messages, as short as receives: whatever was given back just now.
  void replace(size_t count) {
    look();
    buffers_.clear();
    for (size_t i = 0; i < count; ++i) {
      const size_t size = random_.spread(1, message_bytes_ + 32);
      Result<Buffer> buffer = process_.node->pool().allocate_buffer(size);
      if (!buffer.ok()) continue;
      std::memset(buffer->data(), pattern(), buffer->size());
      buffers_.push_back(*std::move(buffer));
    }
  }
  void end() {
    look();
    buffers_.clear();
    *self_ = nullptr;
  }

 private:
  uint8_t pattern() const { return static_cast<uint8_t>(0xc0 | process_.index); }
  void look() {
    for (const Buffer& buffer : buffers_) {
      const std::span<const uint8_t> bytes = buffer.bytes();
      if (std::all_of(bytes.begin(), bytes.end(), [&](uint8_t b) { return b == pattern(); })) {
        continue;
      }
      process_.host->simulation().violate(
          fmt::format("host {}: somebody wrote into a buffer of {} bytes that was not his",
                      process_.index, buffer.size()));
    }
  }

  Process& process_;
  const uint32_t message_bytes_;
  Random random_;
  std::vector<Buffer> buffers_;
  const std::shared_ptr<Canary*> self_ = std::make_shared<Canary*>(this);  // null: ended
};

Application::Application(Cluster& cluster)
    : cluster_(cluster),
      simulation_(cluster.simulation()),
      work_(cluster.knobs().work),
      random_(cluster.simulation().random().fork()) {}

Application::~Application() = default;

void Application::on_start(Process& process) {
  const Address address = process.host->address(kPort);
  auto listener = process.node->listen(address, [this, &process](Socket& socket) {
    ends_.push_back(std::make_unique<ConversationEnd>(*this, process, kAccepting));
    static_cast<void>(socket);
    return ends_.back().get();
  });
  if (!listener.ok()) return simulation_.violate("listen: " + listener.status().to_string());
  listeners_[&process] = *std::move(listener);
  for (uint32_t i = 0; i < work_.canaries; ++i) {
    auto canary = std::make_unique<Canary>(process, work_.message_bytes, random_.fork());
    canary->sing();
    canaries_[&process].push_back(std::move(canary));
  }
}

// Uses what an engine that failed has given back, at once.
void Application::on_broken(Process& process) {
  for (const auto& canary : canaries_[&process]) canary->replace(kGrabbed);
}

void Application::on_end(Process& process) {
  for (const auto& canary : canaries_[&process]) canary->end();
  canaries_.erase(&process);
  listeners_.erase(&process);
  for (const auto& end : ends_) {
    if (&end->process() == &process) end->on_process_end();
  }
}

// Who talks to it over RDMA must have noticed that it was silent for so long.
void Application::on_resume(Process& process, Nanoseconds length) {
  for (const auto& plan : plans_) {
    for (const Side side : {kConnecting, kAccepting}) {
      const ConversationEnd* end = plan->ends[side];
      const Side other = side == kConnecting ? kAccepting : kConnecting;
      if (end == nullptr || plan->ends[other] == nullptr) continue;
      if (&plan->ends[other]->process() != &process || !end->open_over_rdma()) continue;
      const Process& witness = end->process();
      if (!witness.alive() || witness.host->pace().late_one_in != 0) continue;
      const EngineOptions& own = witness.node->options().engine;
      const EngineOptions& peer = process.node->options().engine;
      const Nanoseconds limit =
          std::max(own.keepalive_timeout, 3 * peer.keepalive_interval) + 3 * own.keepalive_interval;
      if (length <= limit || simulation_.now() - witness.running_since <= length) continue;
      simulation_.violate(fmt::format("host {} has not noticed that host {} was silent for {} ms",
                                      witness.index, process.index, length / 1ms));
    }
  }
}

void Application::start() {
  for (uint32_t i = 0; i < work_.conversations; ++i) {
    auto plan = std::make_unique<Plan>(random_.fork());
    Random& random = plan->random;
    plan->model = std::make_unique<Conversation>(simulation_, i, cluster_.knobs().refusals_allowed);
    plan->processes[kConnecting] = static_cast<uint32_t>(random.below(cluster_.size()));
    plan->processes[kAccepting] = static_cast<uint32_t>(
        (plan->processes[kConnecting] + random.between(1, cluster_.size() - 1)) % cluster_.size());
    for (uint32_t& messages : plan->messages) {
      messages = static_cast<uint32_t>(random.between(1, work_.messages));
    }
    if (work_.close_early_one_in != 0 && random.one_in(work_.close_early_one_in)) {
      plan->breaker = random.one_in(2) ? kConnecting : kAccepting;
      plan->break_off = static_cast<uint32_t>(random.between(1, work_.messages));
    }
    simulation_.after(random.between(0ns, work_.start_within),
                      [this, raw = plan.get()] { begin(*raw); });
    plans_.push_back(std::move(plan));
  }
}

// From outside of the connecting process' threads, as an application would.
void Application::begin(Plan& plan) {
  plan.began = true;
  Process& process = cluster_.at(plan.processes[kConnecting]);
  const Process& remote = cluster_.at(plan.processes[kAccepting]);
  plan.incarnations[kConnecting] = process.incarnation;
  plan.incarnations[kAccepting] = remote.incarnation;
  if (!process.alive()) return;  // so nobody connects
  ends_.push_back(std::make_unique<ConversationEnd>(*this, process, kConnecting));
  ends_.back()->take(plan);
  SocketOptions options;
  options.connect_timeout = kConnectTimeout;
  process.node->connect(remote.host->address(kPort), options, ends_.back().get());
}

Plan* Application::find(uint32_t number) {
  return number < plans_.size() ? plans_[number].get() : nullptr;
}

bool Application::side_has_ended(const Plan& plan, Side side) const {
  if (plan.model->closed(side)) return true;
  const Process& process = cluster_.at(plan.processes[side]);
  return process.incarnation != plan.incarnations[side] ||
         process.host->state() == Host::State::kDead;
}

// An accepting end that was never told of the connection, or never learnt whose it is, does not
// come to an end of its own.
bool Application::over(const Plan& plan) const {
  if (!plan.began) return false;
  if (plan.ends[kConnecting] == nullptr) return true;  // its process was not alive
  return side_has_ended(plan, kConnecting) &&
         (plan.ends[kAccepting] == nullptr || side_has_ended(plan, kAccepting));
}

bool Application::done() const {
  return std::all_of(plans_.begin(), plans_.end(),
                     [this](const auto& plan) { return over(*plan); });
}

std::string Application::unfinished() const {
  std::string text;
  for (const auto& plan : plans_) {
    if (over(*plan)) continue;
    text += fmt::format(" {} ({} -> {}: {} of {} and {} of {} delivered{}{});",
                        plan->model->number(), plan->processes[0], plan->processes[1],
                        plan->model->delivered_count(kConnecting), plan->messages[0],
                        plan->model->delivered_count(kAccepting), plan->messages[1],
                        side_has_ended(*plan, kConnecting) ? ", connecting side over" : "",
                        side_has_ended(*plan, kAccepting) ? ", accepting side over" : "");
  }
  return text;
}

void Application::check() {
  for (const auto& plan : plans_) {
    bool healthy = plan->ends[kConnecting] != nullptr;
    for (const Side side : {kConnecting, kAccepting}) {
      healthy = healthy && !cluster_.at(plan->processes[side]).faulty;
    }
    plan->model->check(healthy);
  }
}

}  // namespace be::sim
