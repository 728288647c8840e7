// ChannelCore: what a Channel does on its I/O thread.
//
//   call()  any thread -> CallTable slot -> [inbox -> I/O thread] -> begin() -> Lane -> Socket
//   Socket -> Lane -> end()          DeadlineWheel, one timer -> end()        cancel() -> end()
//
// A call ends in end() or one of its bulk forms, exactly once: its slot is released first, so
// its callback may start new calls, cancel others, or (driven node) destroy the Channel.
//
// Everything but call() and cancel() is for the I/O thread. Shared by the Channel and its lanes:
// a socket that is still closing keeps the core, not the Channel.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "be/base/fork.h"
#include "be/rpc/call_table.h"
#include "be/rpc/channel.h"
#include "be/rpc/deadline_wheel.h"
#include "be/rpc/lane.h"

namespace be::rpc {

class ChannelCore final : public std::enable_shared_from_this<ChannelCore> {
 public:
  ChannelCore(Node& node, const Address& server, const ChannelOptions& options);

  // Any thread.
  CallId call(MethodId method, Payload&& request, const CallOptions& options,
              ResponseCallback&& callback, std::atomic<CallId>* early_id);
  void cancel(CallId call);

  Node& node() { return node_; }
  IoThread& thread() { return thread_; }
  const Address& server() const { return server_; }
  std::optional<TransportKind> transport() const;
  uint64_t late_responses() const { return late_responses_.load(std::memory_order_relaxed); }

  bool forked() const { return forked_; }  // we are in a child
  Status forked_error() const { return forked_status("the channel to " + server_.to_string()); }

  // All calls end with kCancelled, then the sockets are closed.
  void shut_down();

  // For the lanes.
  const ChannelOptions& options() const { return options_; }
  CallTable& calls() { return calls_; }
  bool shutting_down() const { return shutting_down_; }
  void end(uint32_t index, Result<Payload>&& answer);
  void end_later(uint32_t index, Status status);  // for within call(): the callback is posted
  void end_all_of_lane(uint8_t lane, bool waiting_too, const Status& status);
  void count_late_response() { late_responses_.fetch_add(1, std::memory_order_relaxed); }
  void update_transport();

 private:
  Lane& lane_of(const CallTable::Slot& slot) { return slot.lane == 0 ? small_ : bulk_; }
  void begin(uint32_t index, Payload&& request, Time now);
  void begin_submitted();
  void cancel_here(CallId call);
  ResponseCallback finish(uint32_t index);
  void look_at_deadlines(Time when);
  void on_deadline_timer();
  Status deadline_error(uint32_t index);

  Node& node_;
  const Address server_;
  const ChannelOptions options_;
  IoThread& thread_;
  bool forked_ = false;
  const ForkWatcher fork_watcher_;
  CallTable calls_;
  DeadlineWheel deadlines_;
  Lane small_;
  Lane bulk_;
  TimerId timer_ = 0;
  Time timer_at_ = kNever;
  bool shutting_down_ = false;
  std::atomic<int> transport_;
  std::atomic<uint64_t> late_responses_{0};
};

}  // namespace be::rpc
