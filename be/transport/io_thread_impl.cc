#include "be/transport/io_thread_impl.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "be/base/log.h"

namespace be {
namespace {

// The thread whose loop this kernel thread is inside of (in a simulation: one after the other).
thread_local IoThreadImpl* current_thread = nullptr;

class Inside {
 public:
  explicit Inside(IoThreadImpl* thread) : previous_(std::exchange(current_thread, thread)) {}
  ~Inside() { current_thread = previous_; }

 private:
  IoThreadImpl* previous_;
};

}  // namespace

Result<std::unique_ptr<IoThreadImpl>> IoThreadImpl::create(World& world, RegisteredPool& pool,
                                                           const Options& options) {
  BE_ASSIGN_OR_RETURN(std::unique_ptr<Poller> poller, world.make_poller());
  return std::unique_ptr<IoThreadImpl>(new IoThreadImpl(world, pool, options, std::move(poller)));
}

IoThreadImpl::IoThreadImpl(World& world, RegisteredPool& pool, const Options& options,
                           std::unique_ptr<Poller> poller)
    : world_(world),
      pool_(pool),
      options_(options),
      poller_(std::move(poller)),
      driver_(this_thread_id()),
      fork_watcher_([](void* self) { static_cast<IoThreadImpl*>(self)->die_in_child(); }, this),
      scratch_(new uint8_t[kScratchHeadroom + kScratchBytes]),
      staging_(new uint8_t[kStagingBytes]) {}

IoThreadImpl::~IoThreadImpl() {
  assert(residents_.empty() || left_residents_);
  if (on_free_id_ != 0) pool_.cancel_on_free(on_free_id_);
}

// The loop of a started thread ends, should the process have forked from within it.
void IoThreadImpl::die_in_child() {
  forked_ = true;
  inbox_.abandon();
}

bool IoThreadImpl::post(Task task) {
  switch (inbox_.push(std::move(task))) {
    case TaskInbox::Pushed::kClosed:
      return false;
    case TaskInbox::Pushed::kQueuedAndWakeOwner:
      poller_->wake();
      return true;
    case TaskInbox::Pushed::kQueued:
      return true;
  }
  return false;
}

bool IoThreadImpl::on_this_thread() const {
  if (current_thread != nullptr) return current_thread == this;
  return options_.driven && driver_.load(std::memory_order_relaxed) == this_thread_id();
}

Status IoThreadImpl::start() {
  const std::string name = fmt::format("be-io-{}", options_.index);
  BE_ASSIGN_OR_RETURN(loop_,
                      world_.executor().start_loop(name, *poller_, [this] { return step(); }));
  return {};
}

bool IoThreadImpl::step() {
  const Inside inside(this);
  if (iterate()) {
    busy();
  } else if (!shutdown_finished()) {
    idle(kNever, options_.spin_forever);
  }
  return !shutdown_finished() && !forked_;
}

bool IoThreadImpl::poll() {
  if (forked_) return false;
  driver_.store(this_thread_id(), std::memory_order_relaxed);
  const Inside inside(this);
  clock_due_ = true;
  return iterate();
}

bool IoThreadImpl::run_until(const std::function<bool()>& done, Time deadline, bool spin_forever) {
  if (forked_) return done();
  driver_.store(this_thread_id(), std::memory_order_relaxed);
  const Inside inside(this);
  clock_due_ = true;
  by_clock_ = false;
  for (;;) {
    if (done()) return true;
    const bool worked = iterate();
    if (done()) return true;
    if (now_ >= deadline) return false;
    if (worked) {
      busy();
    } else {
      idle(deadline, spin_forever || options_.spin_forever);
    }
  }
}

bool IoThreadImpl::iterate() {
  assert(!in_iteration_);
  in_iteration_ = true;
  if (asleep_) {
    asleep_ = false;
    inbox_.awake();
  }
  read_clock();
  bool worked = inbox_.run_all();
  if (worked) by_clock_ = false;
  worked |= run_scheduled();
  if (!ports_.empty() && poll_ports()) {
    worked = true;
    run_scheduled();
  }
  if (direct_ != nullptr) {
    if (direct_->poll_input()) {
      by_clock_ = false;
      direct_misses_ = 0;
      worked = true;
      run_scheduled();
    } else if (++direct_misses_ == kDirectMisses) {
      direct_ = nullptr;
    }
  }
  worked |= check_poller();
  if (timers_.next() <= now_ && timers_.run_due(now_) > 0) {
    worked = true;
    by_clock_ = false;
  }
  worked |= run_scheduled();
  bury();
  in_iteration_ = false;
  clock_due_ |= worked;
  return worked;
}

// Reading the clock costs as much as a look at the queues, and nothing of length happens between
// two empty iterations.
void IoThreadImpl::read_clock() {
  if (!clock_due_ && ++since_clock_ < kClockInterval) return;
  clock_due_ = false;
  since_clock_ = 0;
  now_ = world_.now();
  if (yielded_at_ != kNever) {
    if (now_ - yielded_at_ > kLongYield) crowded_until_ = now_ + kCrowdedPeriod;
    yielded_at_ = kNever;
  }
}

bool IoThreadImpl::check_poller() {
  const bool engines = engine_count() > 0;
  const int interval = engines              ? kPollerIntervalOfEngines
                       : direct_ != nullptr ? kPollerInterval
                                            : 1;
  if (poller_hot_ == 0) {
    if (++since_poller_ < interval) return false;
    if (engines && now_ < poller_due_) return false;
  }
  since_poller_ = 0;
  poller_due_ = now_ + kPollerPauseOfEngines;
  if (poller_->wait(Time::min()) > 0) {
    poller_hot_ = kPollerInterval;
    return true;
  }
  if (poller_hot_ > 0) --poller_hot_;
  return false;
}

size_t IoThreadImpl::engine_count() const {
  size_t count = 0;
  for (const auto& port : ports_) count += port->engine_count();
  return count;
}

const char* IoThreadImpl::broken_invariant() const {
  for (const auto& port : ports_) {
    if (const char* broken = port->broken_invariant()) return broken;
  }
  return nullptr;
}

bool IoThreadImpl::poll_ports() {
  bool worked = false;
  for (const auto& port : ports_) {
    worked |= port->poll();
    port->tick(now_);
  }
  return worked;
}

Result<DevicePort*> IoThreadImpl::port_for(NodeDevice device, const EngineOptions& options) {
  const uint32_t completions = Engine::completions_needed(options);
  for (const auto& port : ports_) {
    if (port->device().device != device.device) continue;
    if (port->fits(completions)) return port.get();
    if (options.shared_receives != 0) {
      return error(Code::kResourceExhausted,
                   "{} engines share the {} receives of this I/O thread on {}; "
                   "engine.shared_receives can be raised",
                   port->engine_count(), options.shared_receives, device.device->name());
    }
  }
  if (ports_.size() == kMaxPorts) {
    return error(Code::kResourceExhausted, "{} completion queues are full on this I/O thread",
                 kMaxPorts);
  }
  BE_ASSIGN_OR_RETURN(std::unique_ptr<DevicePort> port, DevicePort::create(*this, device, options));
  if (!port->fits(completions)) {
    return error(Code::kResourceExhausted, "{} completions do not fit a completion queue of {}",
                 completions, device.device->name());
  }
  ports_.push_back(std::move(port));
  return ports_.back().get();
}

bool IoThreadImpl::run_scheduled() {
  if (scheduled_.empty()) return false;
  bool worked = false;
  running_.swap(scheduled_);
  for (size_t i = 0; i < running_.size(); ++i) {
    Resident* resident = running_[i];
    if (resident->disposed_) continue;
    resident->scheduled_ = false;
    worked |= resident->progress();
  }
  running_.clear();
  return worked;
}

void IoThreadImpl::busy() {
  if (!by_clock_) idle_since_ = kNever;
  empty_iterations_ = 0;
}

void IoThreadImpl::idle(Time deadline, bool spin_forever) {
  if (idle_since_ == kNever) idle_since_ = now_;
  if (!spin_forever && (now_ - idle_since_ >= options_.spin || now_ < crowded_until_)) {
    return sleep(deadline);
  }
  // Looking at engines costs nanoseconds, so a core of our own is not given away each time.
  const bool cheap = engine_count() > 0 && !core_shared_;
  const int polls = spin_forever ? kPollsPerYieldOfSpinner : cheap ? kPollsPerYield : 1;
  if (++empty_iterations_ % polls != 0) return;
  yielded_at_ = now_;
  clock_due_ = true;
  core_shared_ = poller_->yield();
}

void IoThreadImpl::sleep(Time deadline) {
  Time until = std::min({deadline, timers_.next(), shutdown_bound_});
  if (!ports_.empty()) {
    // A completion between the last poll and the arming raises no event: look once more.
    for (const auto& port : ports_) port->arm();
    if (iterate()) return busy();
    until = std::min(until, timers_.next());
    for (const auto& port : ports_) until = std::min(until, port->next_tick());
  }
  if (!scheduled_.empty() || !inbox_.about_to_sleep()) return;
  // Handlers run inside of wait(): for them now() reads the clock.
  clock_due_ = true;
  asleep_ = true;  // a virtual Poller returns at once: we are asleep until the next iteration
  const Time asleep_since = world_.now();
  const bool called = poller_->wait(until) > 0;
  const Time awake_since = world_.now();
  if (awake_since >= until) {
    by_clock_ = true;
  } else if (called && !(by_clock_ && awake_since - asleep_since < options_.spin)) {
    // (Else the event is that our own keepalive has been written.)
    by_clock_ = false;
    idle_since_ = kNever;
  }
}

void IoThreadImpl::add(std::unique_ptr<Resident> resident) {
  resident->place_ = residents_.size();
  residents_.push_back(std::move(resident));
}

void IoThreadImpl::dispose(Resident* resident) {
  if (resident->disposed_) return;
  resident->disposed_ = true;
  if (direct_ == resident) direct_ = nullptr;
  if (resident->scheduled_) std::erase(scheduled_, resident);
  if (resident->waits_for_memory_) std::erase(memory_waiters_, resident);
  const size_t place = resident->place_;
  graveyard_.push_back(std::move(residents_[place]));
  if (place + 1 != residents_.size()) {
    residents_[place] = std::move(residents_.back());
    residents_[place]->place_ = place;
  }
  residents_.pop_back();
}

// A destructor may dispose of others.
void IoThreadImpl::bury() {
  while (!graveyard_.empty()) {
    const std::vector<std::unique_ptr<Resident>> dead = std::move(graveyard_);
    graveyard_.clear();
  }
}

void IoThreadImpl::schedule(Resident* resident) {
  if (resident->scheduled_ || resident->disposed_) return;
  resident->scheduled_ = true;
  scheduled_.push_back(resident);
}

void IoThreadImpl::read_directly(Resident* resident) {
  direct_ = resident;
  direct_misses_ = 0;
}

void IoThreadImpl::wait_for_memory(Resident* resident) {
  if (resident->waits_for_memory_ || resident->disposed_) return;
  resident->waits_for_memory_ = true;
  memory_waiters_.push_back(resident);
  if (on_free_id_ != 0) return;
  on_free_id_ = pool_.on_free([this] {
    post([this] {
      on_free_id_ = 0;
      memory_freed();
    });
  });
  // What was freed between the failed allocation and on_free() is told by nobody: try once.
  post([this] { memory_freed(); });
}

void IoThreadImpl::memory_freed() {
  const std::vector<Resident*> waiters = std::exchange(memory_waiters_, {});
  for (Resident* resident : waiters) resident->waits_for_memory_ = false;
  for (Resident* resident : waiters) {
    if (!resident->disposed_) resident->on_memory();
  }
}

void IoThreadImpl::ask_to_shut_down(const Status& why, Nanoseconds bound) {
  post([this, why, bound] { begin_shutdown(why, bound); });
}

bool IoThreadImpl::finish_shutdown() {
  if (loop_ != nullptr) {
    loop_->join();
  } else {
    driver_.store(this_thread_id(), std::memory_order_relaxed);
    const Inside inside(this);
    clock_due_ = true;  // who drives it may have let it rest: the bound counts from now
    while (!shutdown_finished()) {
      if (!iterate() && !shutdown_finished()) idle(kNever, false);
    }
  }
  // The loop has ended: nobody else is on this thread any more.
  const Inside inside(this);
  inbox_.close_and_run();
  bury();
  return residents_.empty();
}

void IoThreadImpl::begin_shutdown(const Status& why, Nanoseconds bound) {
  shutting_down_ = true;
  shutdown_bound_ = saturating_add(now(), bound);
  std::vector<Resident*> all;
  for (const auto& resident : residents_) all.push_back(resident.get());
  for (Resident* resident : all) {
    if (!resident->disposed_) resident->shut_down(why);
  }
}

bool IoThreadImpl::shutdown_finished() {
  if (!shutting_down_) return false;
  if (residents_.empty()) return true;
  if (world_.now() < shutdown_bound_) return false;
  left_residents_ = true;
  return true;
}

}  // namespace be
