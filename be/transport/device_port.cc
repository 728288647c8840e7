#include "be/transport/device_port.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "be/base/log.h"
#include "be/transport/engine_link.h"
#include "be/transport/io_thread_impl.h"
#include "be/verbs/errors.h"

namespace be {

Result<std::unique_ptr<DevicePort>> DevicePort::create(IoThreadImpl& thread, NodeDevice device,
                                                       const EngineOptions& options) {
  std::unique_ptr<DevicePort> port(new DevicePort(thread, device));
  if (Status status = port->set_up(options); !status.ok()) {
    return status.with_context(device.device->name());
  }
  return port;
}

Status DevicePort::set_up(const EngineOptions& options) {
  Device& device = *device_.device;
  const uint32_t most = device.limits().max_completions;
  if (options.shared_receives != 0) {
    capacity_ = engines_sharing(options) * Engine::completions_needed(options);
  }
  const uint32_t completions = options.shared_receives + capacity_;
  if (completions > most) {
    return error(Code::kUnsupported, "completion queues have {} entries, {} are needed{}", most,
                 completions,
                 options.shared_receives == 0 ? "" : ": engine.shared_receives is too large");
  }
  if (options.shared_receives != 0) share_receives(options, completions);
  BE_ASSIGN_OR_RETURN(channel_, device.create_event_channel());
  BE_ASSIGN_OR_RETURN(thread_domain_, device.create_thread_domain());
  BE_ASSIGN_OR_RETURN(cq_, device.create_cq(completions, channel_.get(), this, thread_domain_));
  return thread_.poller().add(channel_->fd(), this);
}

void DevicePort::share_receives(const EngineOptions& options, uint32_t completions) {
  SharedReceives::Resources resources;
  resources.device = device_.device;
  resources.pool = &thread_.pool();
  resources.device_index = device_.index;
  resources.entries = options.shared_receives;
  resources.bytes = options.eager_bytes;
  resources.completions = completions;
  resources.wake = [&thread = thread_, self = std::weak_ptr<DevicePort*>(self_)] {
    thread.post([&thread, self] {
      if (const auto alive = self.lock()) (*alive)->retry_shared(thread.now());
    });
  };
  shared_ = std::make_unique<SharedReceives>(resources);
}

DevicePort::~DevicePort() {
  Device& device = *device_.device;
  shared_.reset();
  if (channel_ != nullptr) thread_.poller().remove(channel_->fd());
  if (cq_ != nullptr) {
    const Status status = device.destroy_cq(cq_);
    if (!status.ok()) log_error("{}: {}", device.name(), status.to_string());
  }
  channel_.reset();
  if (thread_domain_ != nullptr) device.destroy_thread_domain(thread_domain_);
}

uint32_t DevicePort::attach(EngineLink* link, uint32_t completions) {
  assert(fits(completions));
  used_ += completions;
  ++engines_;
  const auto free = std::find(links_.begin(), links_.end(), nullptr);
  const auto index = static_cast<uint32_t>(free - links_.begin());
  if (free == links_.end()) {
    links_.push_back(link);
  } else {
    *free = link;
  }
  return index;
}

void DevicePort::detach(uint32_t index, uint32_t completions) {
  queue_pairs_.remove(links_[index]);
  links_[index] = nullptr;
  used_ -= completions;
  --engines_;
}

void DevicePort::set_queue_pair(uint32_t index, uint32_t number) {
  queue_pairs_.put(number, links_[index]);
}

bool DevicePort::poll() {
  ibv_wc completions[kBatch];
  const int count = ibv_poll_cq(cq_, kBatch, completions);
  bool asked = false;
  for (int i = 0; i < count; ++i) {
    // Flushed work says that its QP has failed, not why; the device's event does. The cause first.
    if (completions[i].status == IBV_WC_WR_FLUSH_ERR && !std::exchange(asked, true)) {
      on_ready(true, false);
    }
    if (SharedReceives::owns(completions[i].wr_id)) {
      give_shared(completions[i]);
      continue;
    }
    const uint32_t index = Engine::engine_index_of(completions[i].wr_id);
    EngineLink* link = index < links_.size() ? links_[index] : nullptr;
    if (link != nullptr) link->on_completion(completions[i]);
  }
  if (count < 0) log_error("{}: ibv_poll_cq failed", device_.device->name());
  if (shared_ != nullptr && (count > 0 || shared_->awaits_poll())) {
    const auto polled = static_cast<uint32_t>(std::max(count, 0));
    settle_shared(shared_->polled(polled, count < kBatch, thread_.now()));
  }
  return count > 0;
}

void DevicePort::give_shared(const ibv_wc& completion) {
  EngineLink* link = queue_pairs_.find(completion.qp_num);
  if (link == nullptr || link->disposed()) {
    shared_->give_back(shared_->take(completion.wr_id));
  } else {
    link->on_completion(completion);
  }
}

void DevicePort::retry_shared(Time now) { settle_shared(shared_->retry(now)); }

void DevicePort::settle_shared(const Status& status) {
  next_tick_ = std::min(next_tick_, shared_->next_retry());
  if (status.ok()) return;
  for (size_t i = 0; i < links_.size(); ++i) {
    if (links_[i] != nullptr) links_[i]->fail(status);
  }
}

void DevicePort::arm() {
  if (armed_ || engines_ == 0) return;
  const int failure = ibv_req_notify_cq(cq_, 0);
  armed_ = failure == 0;
  if (failure != 0) {
    log_error("{}", verb_error("ibv_req_notify_cq", failure, device_.device->name()).to_string());
  }
}

void DevicePort::tick(Time now) {
  if (now < next_tick_) return;
  if (shared_ != nullptr && now >= shared_->next_retry()) retry_shared(now);
  for (size_t i = 0; i < links_.size(); ++i) {
    if (links_[i] != nullptr) links_[i]->tick(now);
  }
  next_tick();
}

Time DevicePort::next_tick() {
  next_tick_ = shared_ != nullptr ? shared_->next_retry() : kNever;
  for (const EngineLink* link : links_) {
    if (link != nullptr) next_tick_ = std::min(next_tick_, link->next_tick());
  }
  return next_tick_;
}

const char* DevicePort::broken_invariant() const {
  if (shared_ != nullptr) {
    if (const char* broken = shared_->broken_invariant()) return broken;
  }
  for (const EngineLink* link : links_) {
    if (link == nullptr) continue;
    if (const char* broken = link->broken_invariant()) return broken;
  }
  return nullptr;
}

void DevicePort::on_ready(bool, bool) {
  channel_->take_events(events_);
  const std::vector<DeviceEvent> events = std::exchange(events_, {});
  for (const DeviceEvent& event : events) dispatch(event);
}

void DevicePort::dispatch(const DeviceEvent& event) {
  switch (event.kind) {
    case DeviceEvent::Kind::kCompletion:
      armed_ = false;
      return;
    case DeviceEvent::Kind::kConnected:
      if (EngineLink* link = link_of(event.qp)) link->on_connected(event.status);
      return;
    case DeviceEvent::Kind::kQpFatal:
      if (EngineLink* link = link_of(event.qp)) link->fail(event.status);
      return;
    case DeviceEvent::Kind::kLastWqeReached:
      if (EngineLink* link = link_of(event.qp)) link->on_last_receive();
      return;
    case DeviceEvent::Kind::kQuiesced:
      for (size_t i = 0; i < links_.size(); ++i) {
        if (links_[i] != nullptr) links_[i]->on_quiesced(event.token);
      }
      return;
    case DeviceEvent::Kind::kDeviceRemoved:
      for (size_t i = 0; i < links_.size(); ++i) {
        if (links_[i] != nullptr) links_[i]->fail(event.status);
      }
      return;
  }
}

EngineLink* DevicePort::link_of(const ibv_qp* qp) const {
  for (EngineLink* link : links_) {
    if (link != nullptr && link->qp() == qp) return link;
  }
  return nullptr;
}

}  // namespace be
