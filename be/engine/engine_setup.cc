#include <algorithm>
#include <cassert>
#include <cstring>
#include <utility>

#include "be/engine/engine_impl.h"

namespace be {
namespace {

// S (paper 6.3): as large as throughput asks, as small as a waiting neighbour asks.
constexpr uint32_t kSoftnicFragment = 64u << 10;
constexpr uint32_t kNicFragment = 8u << 10;

uint32_t fragments_at_once(const DeviceLimits& limits, const EngineOptions& options) {
  return limits.useful_writes != 0 ? limits.useful_writes : options.send_queue_depth;
}

// Receiver not ready: never with receives of its own, where it would be a wrong credit. On an SRQ
// the device may be for the moment of posting again.
constexpr uint8_t kRetryForEver = 7;
constexpr uint8_t kShortestRnrTimer = 1;  // 10 us; 0 would be the longest

}  // namespace

uint32_t Engine::fragment_bytes(const EngineOptions& options, DeviceKind kind) {
  if (options.fragment_bytes != 0) return options.fragment_bytes;
  const uint32_t wish = kind == DeviceKind::kSoftnic ? kSoftnicFragment : kNicFragment;
  return options.send_window_bytes == 0 ? wish : std::min(wish, options.send_window_bytes);
}

uint32_t reserved_receives(const EngineOptions& options) {
  return options.grants + 2 + 2 * options.write_requests + options.grant_cancels;
}

Engine::Impl::Impl(const Resources& resources, const EngineOptions& options, EngineUser* user)
    : resources_(resources),
      options_(options),
      user_(user),
      fork_watcher_([](void* self) { static_cast<Impl*>(self)->state_ = State::kDead; }, this),
      chain_(options.send_queue_depth, options.send_window_bytes),
      send_slots_(chain_.slots()),
      fragment_bytes_(Engine::fragment_bytes(options, resources.device->kind())),
      fragment_limit_(fragments_at_once(resources.device->limits(), options)),
      small_limit_(std::min(options.eager_bytes, fragment_bytes_)),
      window_(options.send_window_bytes),
      write_requests_(options.write_requests),
      requested_(options.write_requests),
      grants_(options.grants, options.grant_budget_bytes),
      open_grants_(options.grants),
      ring_(resources.shared_receives == nullptr
                ? ReceiveRing(options.recv_queue_depth, reserved_receives(options))
                : ReceiveRing::shared(options.recv_queue_depth, reserved_receives(options),
                                      initial_credits(options))),
      shared_(resources.shared_receives),
      signal_(std::make_shared<MemorySignal>()) {
  if (shared_ == nullptr) {
    receive_buffers_.resize(ring_.slots());
    receive_wrs_.resize(ring_.depth());
    receive_sges_.resize(ring_.depth());
    spares_.reserve(ring_.depth());
  }
  signal_->wake = resources.wake;
  local_.recv_queue_depth = options.recv_queue_depth;
  local_.initial_credits = initial_credits(options);
  local_.shared_receives = shared_ != nullptr;
  local_.grants = options.grants;
  local_.write_requests = options.write_requests;
  local_.grant_cancels = options.grant_cancels;
  local_.eager_bytes = options.eager_bytes;
  local_.max_message_bytes = options.max_message_bytes;
  local_.keepalive_interval = options.keepalive_interval;
  remote_ = local_;  // until we know better
}

// Of an engine that was never connected, or is dead: nobody can reach its memory.
Engine::Impl::~Impl() {
  if (qp_ != nullptr) resources_.device->retire_qp(qp_).status().ignore();
  if (share_ != CreditDealer::kNobody) shared_->forget(share_);
  release();
}

Result<std::unique_ptr<Engine>> Engine::create(const Resources& resources,
                                               const EngineOptions& options, EngineUser* user) {
  BE_RETURN_IF_ERROR(options.check());
  assert(resources.engine_index < (1u << 20));
  auto impl = std::make_unique<Impl>(resources, options, user);
  if (Status status = impl->set_up(); !status.ok()) {
    return status.with_context("engine to " + resources.peer);
  }
  return std::unique_ptr<Engine>(new Engine(std::move(impl)));
}

Status Engine::Impl::set_up() {
  if (shared_ != nullptr) BE_RETURN_IF_ERROR(share_receives());
  BE_RETURN_IF_ERROR(make_queue_pair());
  BE_RETURN_IF_ERROR(make_memory());
  return shared_ != nullptr ? Status() : fill_receives();
}

Status Engine::Impl::share_receives() {
  BE_ASSIGN_OR_RETURN(share_, shared_->admit(this, {.reserve = reserved_receives(options_),
                                                    .floor = initial_credits(options_),
                                                    .most = options_.recv_queue_depth}));
  while (!ring_.complete()) ring_.post_first();
  return {};
}

Status Engine::Impl::make_queue_pair() {
  const DeviceLimits& limits = resources_.device->limits();
  if (limits.max_send_sge < kMaxSge) {
    return error(Code::kUnsupported, "{} gathers {} pieces, {} are needed",
                 resources_.device->name(), limits.max_send_sge, kMaxSge);
  }
  const uint32_t receives = shared_ == nullptr ? ring_.depth() : 0;
  const uint32_t deepest = std::max(options_.send_queue_depth, receives);
  if (deepest > limits.max_queue_depth) {
    return error(Code::kResourceExhausted,
                 "{} has queues of {} work requests, engine.*_queue_depth, grants and "
                 "write_requests need {}",
                 resources_.device->name(), limits.max_queue_depth, deepest);
  }
  QueuePairOptions options;
  options.send_cq = resources_.cq;
  options.recv_cq = resources_.cq;
  options.send_depth = options_.send_queue_depth;
  options.srq = shared_ == nullptr ? nullptr : shared_->srq();
  options.recv_depth = receives;
  options.max_send_sge = kMaxSge;
  options.max_recv_sge = 1;
  options.max_inline_bytes = std::min(limits.max_inline_bytes, options_.eager_bytes);
  options.user = this;
  options.thread_domain = resources_.thread_domain;
  BE_ASSIGN_OR_RETURN(const QueuePair made, resources_.device->create_qp(options));
  qp_ = made.qp;
  inline_bytes_ = std::min(made.max_inline_bytes, small_limit_);
  return {};
}

Status Engine::Impl::make_memory() {
  RegisteredPool& pool = *resources_.pool;
  BE_ASSIGN_OR_RETURN(void* headers, pool.allocate(size_t{chain_.slots()} * kHeaderStride));
  header_memory_ = static_cast<uint8_t*>(headers);
  BE_ASSIGN_OR_RETURN(void* word, pool.allocate(64));
  keepalive_word_ = static_cast<uint64_t*>(word);
  *keepalive_word_ = 0;

  const RegionKeys* header_keys = pool.region(headers, resources_.device_index);
  const RegionKeys* word_keys = pool.region(word, resources_.device_index);
  if (header_keys == nullptr || word_keys == nullptr) {
    return error(Code::kInternal, "the pool is not registered with {}", resources_.device->name());
  }
  header_lkey_ = header_keys->lkey;
  local_.keepalive_address = reinterpret_cast<uintptr_t>(word);
  local_.keepalive_rkey = word_keys->rkey;
  // A region of its own is never relaxed, whatever the pool's are. softnic orders all writes,
  // and opens nothing but the pool to its peers.
  if (resources_.device->kind() != DeviceKind::kSoftnic) {
    BE_ASSIGN_OR_RETURN(keepalive_region_,
                        resources_.device->register_memory(
                            word, 64, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE, {}));
    local_.keepalive_rkey = keepalive_region_->rkey;
  }

  for (uint32_t slot = 0; slot < chain_.slots(); ++slot) {
    SendSlot& send = send_slots_[slot];
    std::memset(&send.wr, 0, sizeof(send.wr));
    send.wr.sg_list = send.sge;
    send.message = nullptr;
  }
  return {};
}

Status Engine::Impl::fill_receives() {
  while (ring_.posted() < ring_.depth()) {
    BE_ASSIGN_OR_RETURN(Buffer buffer, resources_.pool->allocate_buffer(options_.eager_bytes));
    link_receive(std::move(buffer));
    ring_.post_first();
  }
  return post_receives();
}

Status Engine::Impl::connect(const EngineTerms& remote, const EndpointBlob& endpoint,
                             const uint8_t secret_token[16], bool initiator) {
  if (fork_guard_.in_child()) return closed_status();
  if (state_ != State::kInit) return error(Code::kInternal, "connect was called before");
  BE_RETURN_IF_ERROR(remote.check().with_context(resources_.peer));
  remote_ = remote;
  credits_ = CreditLedger(remote.recv_queue_depth, remote.initial_credits);
  credits_at_tick_ = credits_.spent();
  write_requests_.limit(remote.write_requests);
  cancel_limit_ = std::min(options_.grant_cancels, remote.grant_cancels);
  small_limit_ = std::min(small_limit_, remote.eager_bytes);
  inline_bytes_ = std::min(inline_bytes_, small_limit_);
  classify_queued();
  ConnectOptions how;
  how.rnr_retry = remote.shared_receives ? kRetryForEver : 0;
  how.min_rnr_timer = kShortestRnrTimer;
  BE_RETURN_IF_ERROR(resources_.device->connect_qp(qp_, endpoint, secret_token, initiator, how));
  state_ = State::kConnecting;
  return {};
}

// What was sent before the peer's terms were known.
void Engine::Impl::classify_queued() {
  for (uint32_t slot = 0; slot < sockets_.slots(); ++slot) {
    SocketQueue& queue = sockets_.at(slot);
    for (OutgoingMessage* m = queue.messages.front(); m != nullptr; m = m->next) {
      m->large = is_large(m->total);
    }
    find_unrequested(queue, queue.messages.front());
  }
}

void Engine::Impl::on_connected(const Status& status, Time now) {
  now_ = now;
  if (state_ != State::kConnecting) return;
  if (!status.ok()) {
    fail(status);
    return;
  }
  state_ = State::kReady;
  keepalive_.emplace(options_.keepalive_interval, options_.keepalive_timeout,
                     remote_.keepalive_interval, now);
  dirty_ = true;
  for (uint32_t slot = 0; slot < sockets_.slots(); ++slot) {
    OutgoingMessage* next = sockets_.at(slot).messages.front();
    while (next != nullptr) {
      OutgoingMessage* message = std::exchange(next, next->next);
      if (message->payload_bytes() <= remote_.max_message_bytes) continue;
      abandon(slot, message,
              error(Code::kInvalidArgument, "a message of {} bytes, {} takes {}",
                    message->payload_bytes(), resources_.peer, remote_.max_message_bytes));
    }
  }
  deliver();
}

}  // namespace be
