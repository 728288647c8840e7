// DevicePort: one I/O thread's access to one device: its event channel, thread domain and
// completion queue, and which engine a completion or event belongs to.
//
//   possible completions of all engines <= those of the queue  an engine that does not fit goes to
//                                                              another port, or is refused
//   wr_id >> 32  ->  engine index  ->  links_[index]           no search on the data path
//
// With engine.shared_receives it owns the SRQ of the thread's engines: there is one port to a
// device, whose queue has room for the SRQ's entries and the sends of all engines that those
// entries are enough for. Completions of receives then name their queue pair only.
//
// Sleep protocol (blueprint 7): arm(), then poll() once more, then wait in the Poller, where
// our channel's descriptor is registered. Used on its thread only; the device outlives it.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "be/base/poller.h"
#include "be/base/time.h"
#include "be/engine/engine.h"
#include "be/engine/shared_receives.h"
#include "be/transport/queue_pair_table.h"
#include "be/verbs/device.h"

namespace be {

class EngineLink;
class IoThreadImpl;

// A device of the node: `index` is its place in the node's RegisteredPool.
struct NodeDevice {
  Device* device = nullptr;
  size_t index = 0;
};

class DevicePort final : private PollHandler {
 public:
  static Result<std::unique_ptr<DevicePort>> create(IoThreadImpl& thread, NodeDevice device,
                                                    const EngineOptions& options);
  virtual ~DevicePort();
  DevicePort(const DevicePort&) = delete;
  DevicePort& operator=(const DevicePort&) = delete;

  const NodeDevice& device() const { return device_; }
  ibv_cq* cq() const { return cq_; }
  ibv_td* thread_domain() const { return thread_domain_; }
  SharedReceives* shared_receives() const { return shared_.get(); }  // null: not shared
  uint32_t engine_count() const { return engines_; }

  bool fits(uint32_t completions) const { return used_ + completions <= capacity_; }
  uint32_t attach(EngineLink* link, uint32_t completions);  // requires fits(); the engine index
  void set_queue_pair(uint32_t index, uint32_t number);     // whose receives on the SRQ are its
  void detach(uint32_t index, uint32_t completions);

  bool poll();  // takes a batch of completions; true if there were any
  void arm();   // the next completion makes the channel's descriptor readable

  void tick(Time now);                   // cheap while nothing is due
  Time next_tick();                      // looks at every engine
  const char* broken_invariant() const;  // of any engine; null: none
  void ticks_changed() { next_tick_ = Time::min(); }

 private:
  // Few engines share a queue, so that its memory stays in the cache; more get another port.
  static constexpr uint32_t kCompletions = 2048;
  static constexpr int kBatch = 16;

  DevicePort(IoThreadImpl& thread, NodeDevice device)
      : thread_(thread), device_(device), self_(std::make_shared<DevicePort*>(this)) {}
  Status set_up(const EngineOptions& options);
  void share_receives(const EngineOptions& options, uint32_t completions);
  void give_shared(const ibv_wc& completion);
  void retry_shared(Time now);
  void settle_shared(const Status& status);
  void on_ready(bool readable, bool writable) override;
  void dispatch(const DeviceEvent& event);
  EngineLink* link_of(const ibv_qp* qp) const;

  IoThreadImpl& thread_;
  const NodeDevice device_;
  std::unique_ptr<EventChannel> channel_;
  ibv_td* thread_domain_ = nullptr;
  ibv_cq* cq_ = nullptr;
  bool armed_ = false;
  std::unique_ptr<SharedReceives> shared_;
  QueuePairTable queue_pairs_;         // with shared receives
  std::shared_ptr<DevicePort*> self_;  // what the SRQ's memory signal, on any thread, holds

  std::vector<EngineLink*> links_;  // by engine index; null: free
  uint32_t engines_ = 0;
  uint32_t capacity_ = kCompletions;
  uint32_t used_ = 0;  // completions that the engines can fill, those of the SRQ aside
  Time next_tick_ = kNever;
  std::vector<DeviceEvent> events_;
};

}  // namespace be
