#include "be/sim/host.h"

#include <utility>

namespace be::sim {

Host::Host(Simulation& simulation, Internet& internet, uint32_t index, const HostPace& pace)
    : simulation_(simulation),
      index_(index),
      pace_(pace),
      random_(simulation.random().fork()),
      executor_(*this),
      network_(*this, internet) {}

Host::~Host() {
  if (!descriptors_.empty()) {
    simulation_.violate(
        fmt::format("host {} ends with {} open descriptors", index_, descriptors_.size()));
  }
}

Result<std::unique_ptr<Poller>> Host::make_poller() {
  return std::unique_ptr<Poller>(std::make_unique<VirtualPoller>(*this));
}

void Host::random_bytes(std::span<uint8_t> out) {
  for (uint8_t& byte : out) byte = static_cast<uint8_t>(random_.next());
}

Address Host::address(uint16_t port) const {
  return Address::parse(fmt::format("10.0.0.{}:{}", index_ + 1, port)).value();
}

void Host::run(Task action) {
  if (runs()) return action();
  held_.push_back(std::move(action));
}

void Host::stop() {
  if (state_ == State::kRunning) state_ = State::kStopped;
}

void Host::go_on() {
  if (state_ != State::kStopped) return;
  state_ = State::kRunning;
  while (state_ == State::kRunning && !held_.empty()) {
    Task action = std::move(held_.front());
    held_.pop_front();
    action();
  }
}

// The kernel closes what was open; the objects stay, so that wall() can tear them down.
void Host::kill() {
  state_ = State::kDead;
  for (const auto& [fd, descriptor] : descriptors_) descriptor->on_close();
}

void Host::wall() {
  if (state_ != State::kDead) return;
  state_ = State::kWalled;
  for (const auto& [fd, descriptor] : descriptors_) {
    if (auto* stream = dynamic_cast<Stream*>(descriptor.get())) stream->reset();
  }
  while (!held_.empty()) {
    Task action = std::move(held_.front());
    held_.pop_front();
    action();
  }
}

int Host::open(std::shared_ptr<Descriptor> descriptor) {
  const int fd = next_descriptor_++;
  descriptors_.emplace(fd, std::move(descriptor));
  return fd;
}

Descriptor* Host::find(int fd) const {
  const auto found = descriptors_.find(fd);
  return found == descriptors_.end() ? nullptr : found->second.get();
}

void Host::close(int fd) {
  const auto found = descriptors_.find(fd);
  if (found == descriptors_.end()) return;
  const std::shared_ptr<Descriptor> descriptor = std::move(found->second);
  descriptors_.erase(found);
  descriptor->on_close();
}

}  // namespace be::sim
