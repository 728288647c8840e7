#include "be/rpc/channel_core.h"

#include <utility>

namespace be::rpc {
namespace {

constexpr int kNoTransport = -1;

}  // namespace

ChannelCore::ChannelCore(Node& node, const Address& server, const ChannelOptions& options)
    : node_(node),
      server_(server),
      options_(options),
      thread_(node.thread_for(server)),
      fork_watcher_([](void* self) { static_cast<ChannelCore*>(self)->forked_ = true; }, this),
      calls_(options.max_outstanding),
      small_(*this, 0),
      bulk_(*this, 1),
      transport_(kNoTransport) {}

CallId ChannelCore::call(MethodId method, Payload&& request, const CallOptions& options,
                         ResponseCallback&& callback, std::atomic<CallId>* early_id) {
  if (forked_) [[unlikely]] {
    if (early_id != nullptr) *early_id = 0;
    callback(forked_error());
    return 0;
  }
  const uint32_t index = calls_.take();
  if (index == CallTable::kNone) {
    if (early_id != nullptr) *early_id = 0;
    thread_.post([callback = std::move(callback), server = server_,
                  limit = options_.max_outstanding]() mutable {
      callback(error(Code::kResourceExhausted, "{} calls to {} are outstanding already", limit,
                     server.to_string()));
    });
    return 0;
  }
  const bool here = thread_.on_this_thread();
  const Time now = here ? thread_.now() : node_.world().now();
  CallTable::Slot& slot = calls_.slot(index);
  slot.callback = std::move(callback);
  slot.method = method;
  slot.deadline = saturating_add(
      now, options.timeout > Nanoseconds::zero() ? options.timeout : options_.request_timeout);
  const CallId id = calls_.id_of(index);
  if (early_id != nullptr) *early_id = id;  // before the call can end
  if (here) {
    begin(index, std::move(request), now);
    return id;
  }
  calls_.waiting(index).payload = std::move(request);
  if (calls_.submit(index)) {
    // Refused only when the thread has stopped: then the call ends with its Channel.
    thread_.post([self = shared_from_this()] { self->begin_submitted(); });
  }
  return id;
}

void ChannelCore::begin_submitted() {
  const Time now = thread_.now();
  for (const uint32_t index : calls_.take_submitted()) {
    begin(index, std::move(calls_.waiting(index).payload), now);
  }
}

void ChannelCore::begin(uint32_t index, Payload&& request, Time now) {
  if (shutting_down_) {
    return end_later(index, error(Code::kCancelled, "the channel to {} is being destroyed",
                                  server_.to_string()));
  }
  const Time deadline = calls_.slot(index).deadline;
  look_at_deadlines(deadlines_.insert(index, deadline, now));
  Lane& lane =
      request.body.size() + request.attachment.size() > options_.bulk_bytes ? bulk_ : small_;
  lane.start(index, std::move(request), deadline - now);
}

// Takes the call out of everything; what is left is its callback.
ResponseCallback ChannelCore::finish(uint32_t index) {
  CallTable::Slot& slot = calls_.slot(index);
  deadlines_.remove(index);
  if (slot.state == CallState::kWaiting) lane_of(slot).stop_waiting(index);
  ResponseCallback callback = std::move(slot.callback);
  calls_.release(index);
  return callback;
}

// Nothing of the core is touched after the callback.
void ChannelCore::end(uint32_t index, Result<Payload>&& answer) {
  finish(index)(std::move(answer));
}

void ChannelCore::end_later(uint32_t index, Status status) {
  thread_.post([callback = finish(index), status = std::move(status)]() mutable {
    callback(std::move(status));
  });
}

void ChannelCore::end_all_of_lane(uint8_t lane, bool waiting_too, const Status& status) {
  std::vector<ResponseCallback> ended;
  for (uint32_t index = 0; index < calls_.size(); ++index) {
    const CallTable::Slot& slot = calls_.slot(index);
    if (slot.lane != lane || slot.state == CallState::kFree) continue;
    if (slot.state == CallState::kWaiting && !waiting_too) continue;
    ended.push_back(finish(index));
  }
  for (ResponseCallback& callback : ended) callback(status);
}

void ChannelCore::cancel(CallId call) {
  if (forked_) return;
  if (thread_.on_this_thread()) return cancel_here(call);
  thread_.post([self = shared_from_this(), call] { self->cancel_here(call); });
}

void ChannelCore::cancel_here(CallId call) {
  const uint32_t index = calls_.find(call);
  if (index == CallTable::kNone) return;
  const CallTable::Slot& slot = calls_.slot(index);
  if (slot.state == CallState::kSent) lane_of(slot).send_cancel(call);
  end(index, error(Code::kCancelled, "the caller withdrew the call to {}", server_.to_string()));
}

// One timer for all calls. It is moved only when a call must be looked at earlier, so in the
// steady state it fires once a timeout, not once a call.
void ChannelCore::look_at_deadlines(Time when) {
  if (when >= timer_at_) return;
  if (timer_ != 0) thread_.timers().cancel(timer_);
  timer_at_ = when;
  timer_ = thread_.timers().schedule(when, [this] { on_deadline_timer(); });
}

void ChannelCore::on_deadline_timer() {
  const auto self = shared_from_this();
  timer_ = 0;
  timer_at_ = kNever;
  std::vector<uint32_t> expired;
  deadlines_.expire(thread_.now(), expired);
  look_at_deadlines(deadlines_.next());
  std::vector<CallId> ids;
  for (const uint32_t index : expired) ids.push_back(calls_.id_of(index));
  for (const CallId id : ids) {
    const uint32_t index = calls_.find(id);  // a callback before may have ended this call too
    if (index != CallTable::kNone) end(index, deadline_error(index));
  }
}

Status ChannelCore::deadline_error(uint32_t index) {
  const CallTable::Slot& slot = calls_.slot(index);
  if (slot.state == CallState::kSent) {
    RegisteredPool& pool = node_.pool();
    if (pool.starved()) {  // it may be here, and have no place
      return error(Code::kDeadlineExceeded,
                   "no answer from {} to method {:#010x} in time; memory.cap_bytes = {} is reached "
                   "at this end",
                   server_.to_string(), slot.method, pool.stats().cap_bytes);
    }
    return error(Code::kDeadlineExceeded, "no answer from {} to method {:#010x} in time",
                 server_.to_string(), slot.method);
  }
  return error(Code::kDeadlineExceeded, "call of method {:#010x} not sent to {} in time: {}",
               slot.method, server_.to_string(),
               lane_of(slot).socket() == nullptr ? "not connected" : "the send queue is full");
}

void ChannelCore::shut_down() {
  const auto self = shared_from_this();
  shutting_down_ = true;
  if (timer_ != 0) thread_.timers().cancel(std::exchange(timer_, 0));
  timer_at_ = kNever;
  std::vector<ResponseCallback> ended;
  for (const uint32_t index : calls_.take_submitted()) {
    calls_.waiting(index).payload = Payload();
    ended.push_back(finish(index));
  }
  for (uint32_t index = 0; index < calls_.size(); ++index) {
    if (calls_.slot(index).state != CallState::kFree) ended.push_back(finish(index));
  }
  small_.close();
  bulk_.close();
  for (ResponseCallback& callback : ended) {
    callback(error(Code::kCancelled, "the channel to {} was destroyed", server_.to_string()));
  }
}

void ChannelCore::update_transport() {
  const Socket* socket = small_.socket() != nullptr ? small_.socket() : bulk_.socket();
  transport_.store(socket == nullptr ? kNoTransport : static_cast<int>(socket->transport()),
                   std::memory_order_relaxed);
}

std::optional<TransportKind> ChannelCore::transport() const {
  const int kind = transport_.load(std::memory_order_relaxed);
  if (kind == kNoTransport) return std::nullopt;
  return static_cast<TransportKind>(kind);
}

}  // namespace be::rpc
