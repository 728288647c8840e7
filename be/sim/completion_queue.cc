#include "be/sim/completion_queue.h"

#include <algorithm>
#include <utility>

namespace be::sim {

VirtualChannel::VirtualChannel(Host& host)
    : host_(host), readiness_(std::make_shared<Readiness>()), fd_(host.open(readiness_)) {}

VirtualChannel::~VirtualChannel() { host_.close(fd_); }

void VirtualChannel::take_events(std::vector<DeviceEvent>& out) {
  out.insert(out.end(), events_.begin(), events_.end());
  events_.clear();
  readiness_->ready = false;
}

void VirtualChannel::push(const DeviceEvent& event) {
  events_.push_back(event);
  readiness_->ready = true;
  readiness_->changed();
}

void VirtualChannel::forget(const ibv_qp* qp) {
  std::erase_if(events_, [qp](const DeviceEvent& event) { return event.qp == qp; });
  readiness_->ready = !events_.empty();
}

void CompletionQueue::settle() {
  Simulation& simulation = fabric_.simulation();
  if (core.overflowed()) simulation.violate("a completion queue has overflowed");
  while (settled_ < core.size()) {
    ++settled_;
    const Nanoseconds delay = simulation.random().between(0ns, fabric_.options().completion_delay);
    last_shown_ = std::max(last_shown_, simulation.now() + delay);
    simulation.at(last_shown_, [weak = weak_from_this()] {
      if (const auto queue = weak.lock()) queue->show_one();
    });
  }
}

Time CompletionQueue::all_shown() const {
  return std::max(last_shown_, fabric_.simulation().now());
}

void CompletionQueue::show_one() {
  if (visible_ == settled_) return;  // that one was dropped
  ++visible_;
  if (!armed_) return;
  armed_ = false;
  DeviceEvent event;
  event.kind = DeviceEvent::Kind::kCompletion;
  event.cq = this;
  events_.push(event);
}

// One may arrive in the moment of arming: visible, and no event tells of it.
void CompletionQueue::arm() {
  if (visible_ < settled_ && fabric_.simulation().random().one_in(2)) ++visible_;
  armed_ = true;
}

int CompletionQueue::poll(int count, ibv_wc* completions) {
  core.begin_poll(completions, std::min(count, static_cast<int>(visible_)));
  const int taken = core.end_poll();
  visible_ -= static_cast<uint32_t>(taken);
  settled_ -= static_cast<uint32_t>(taken);
  return taken;
}

void CompletionQueue::drop(uint32_t qp_num) {
  core.drop(qp_num);
  settled_ = std::min(settled_, core.size());
  visible_ = std::min(visible_, settled_);
}

}  // namespace be::sim
