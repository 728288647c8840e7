// IoThreadImpl: the loop behind IoThread, and what the rest of this folder may ask of it.
//
// One iteration:
//
//   tasks posted | output put off | completions | output | input: direct, Poller | timers |
//   output again | graveyard
//
// "Output put off" is Resident::progress(): gathering writes, an engine's next work requests.
// Looking into the Poller is a system call, so while engines are polled, or the one TCP
// connection in use is read directly, it is done only once in many iterations.
//
// Life: created -> started or driven -> begin_shutdown -> residents gone (or the bound passed)
// -> stopped: posts are refused.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "be/base/fork.h"
#include "be/base/thread_id.h"
#include "be/base/world.h"
#include "be/memory/registered_pool.h"
#include "be/transport/device_port.h"
#include "be/transport/io_thread.h"
#include "be/transport/resident.h"
#include "be/transport/task_inbox.h"

namespace be {

class IoThreadImpl final : public IoThread {
 public:
  struct Options {
    size_t index = 0;
    bool driven = false;
    bool spin_forever = false;
    Nanoseconds spin{};
  };

  // Input is read into scratch() + kScratchHeadroom, so that a few bytes kept from the last
  // read can be put in front.
  static constexpr size_t kScratchBytes = 64 << 10;
  static constexpr size_t kScratchHeadroom = 64;
  static constexpr size_t kStagingBytes = 16 << 10;

  static Result<std::unique_ptr<IoThreadImpl>> create(World& world, RegisteredPool& pool,
                                                      const Options& options);
  ~IoThreadImpl() override;

  bool post(Task task) override;
  bool on_this_thread() const override;
  Time now() const override { return in_iteration_ ? now_ : world_.now(); }
  TimerQueue& timers() override { return timers_; }
  Poller& poller() override { return *poller_; }
  World& world() override { return world_; }
  bool poll() override;
  bool run_until(const std::function<bool()>& done, Time deadline, bool spin_forever) override;

  Status start();
  // Node only, both: all residents are told to end; then, once for each thread, that they are
  // gone or `bound` has passed, and the loop has ended. False: residents were left.
  void ask_to_shut_down(const Status& why, Nanoseconds bound);
  bool finish_shutdown();

  // --- On this thread only ---

  template <typename T>
  T* adopt(std::unique_ptr<T> resident) {
    T* raw = resident.get();
    add(std::move(resident));
    return raw;
  }
  void dispose(Resident* resident);
  void schedule(Resident* resident);         // progress() before the iteration ends
  void read_directly(Resident* resident);    // it had traffic: poll_input() each iteration
  void wait_for_memory(Resident* resident);  // on_memory() when some has been freed
  // A port to `device` on which an engine with these options fits.
  Result<DevicePort*> port_for(NodeDevice device, const EngineOptions& options);
  bool shutting_down() const { return shutting_down_; }
  bool forked() const { return forked_; }  // we are in a child: touch nothing
  size_t engine_count() const;
  const char* broken_invariant() const;  // of any engine; null: none

  size_t index() const { return options_.index; }
  RegisteredPool& pool() { return pool_; }
  uint8_t* scratch() { return scratch_.get(); }
  uint8_t* staging() { return staging_.get(); }

 private:
  // Poller checks: one in so many iterations while other input is hot; every iteration for
  // some time after the Poller had something.
  static constexpr int kPollerInterval = 16;
  static constexpr int kPollerIntervalOfEngines = 64;
  // ... and, since empty polls take nanoseconds and a look into the Poller a system call, at least:
  static constexpr Nanoseconds kPollerPauseOfEngines = 50us;
  static constexpr int kClockInterval = 8;
  static constexpr size_t kMaxPorts = 64;
  static constexpr int kDirectMisses = 1024;
  static constexpr int kPollsPerYield = 128;
  static constexpr int kPollsPerYieldOfSpinner = 512;
  // A yield that takes so long gave the core to somebody who computes. Who sleeps is woken ahead
  // of such a one, who yields waits for its whole time slice: so sleep at once for a while.
  static constexpr Nanoseconds kLongYield = 500us;
  static constexpr Nanoseconds kCrowdedPeriod = 50ms;

  IoThreadImpl(World& world, RegisteredPool& pool, const Options& options,
               std::unique_ptr<Poller> poller);

  void add(std::unique_ptr<Resident> resident);
  bool iterate();
  void read_clock();
  bool check_poller();
  bool run_scheduled();
  bool poll_ports();
  void bury();
  void busy();  // something was done
  void idle(Time deadline, bool spin_forever);
  void sleep(Time deadline);
  bool step();  // of a started thread; false: the loop ends
  void begin_shutdown(const Status& why, Nanoseconds bound);
  bool shutdown_finished();
  void memory_freed();
  void die_in_child();

  World& world_;
  RegisteredPool& pool_;
  const Options options_;
  std::unique_ptr<Poller> poller_;
  TaskInbox inbox_;
  TimerQueue timers_;
  std::unique_ptr<Loop> loop_;
  std::atomic<ThreadId> driver_;  // driven: who called last

  Time now_{};
  Time idle_since_ = kNever;
  Time yielded_at_ = kNever;
  Time crowded_until_ = Time::min();
  // Woken by the clock and by nobody since: to tick, after which nothing is to be expected soon. So
  // it does not spin. (Traffic in that very moment costs one wake more.)
  bool by_clock_ = false;
  bool in_iteration_ = false;
  bool asleep_ = false;  // posts have to wake us
  bool forked_ = false;
  bool clock_due_ = true;
  int since_clock_ = 0;
  int poller_hot_ = 0;
  int since_poller_ = 0;
  Time poller_due_{};
  int empty_iterations_ = 0;
  bool core_shared_ = true;

  std::vector<std::unique_ptr<DevicePort>> ports_;  // outlive the engines among the residents
  std::vector<std::unique_ptr<Resident>> residents_;
  std::vector<std::unique_ptr<Resident>> graveyard_;
  std::vector<Resident*> scheduled_;
  std::vector<Resident*> running_;
  Resident* direct_ = nullptr;
  int direct_misses_ = 0;

  std::vector<Resident*> memory_waiters_;
  uint64_t on_free_id_ = 0;

  bool shutting_down_ = false;
  Time shutdown_bound_ = kNever;
  bool left_residents_ = false;

  const ForkWatcher fork_watcher_;

  std::unique_ptr<uint8_t[]> scratch_;
  std::unique_ptr<uint8_t[]> staging_;
};

}  // namespace be
