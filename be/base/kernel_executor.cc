#include "be/base/kernel_executor.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "be/base/fork.h"

namespace be {
namespace {

constexpr size_t kNameLimit = 15;  // of pthread_setname_np

// Waking a halted core costs about 50 us: who waits that long for work does not lose by it
// (PEERS.md "Waiting"). One idle worker at a time does so, the others sleep at once.
constexpr Nanoseconds kIdleYield = 50us;

Result<std::thread> start_thread(const std::string& name, UniqueFunction<void()> body) {
  sigset_t blocked;
  sigset_t previous;
  sigfillset(&blocked);
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGPROF}) {
    sigdelset(&blocked, fault);
  }
  pthread_sigmask(SIG_SETMASK, &blocked, &previous);  // inherited by the new thread
  Result<std::thread> result = [&]() -> Result<std::thread> {
    try {
      return std::thread(std::move(body));
    } catch (const std::system_error& failure) {
      return error(Code::kResourceExhausted, "start thread '{}': {}", name, failure.what());
    }
  }();
  pthread_sigmask(SIG_SETMASK, &previous, nullptr);
  if (result.ok()) {
    pthread_setname_np(result->native_handle(), name.substr(0, kNameLimit).c_str());
  }
  return result;
}

class KernelLoop final : public Loop {
 public:
  explicit KernelLoop(std::thread thread) : thread_(std::move(thread)) {}
  ~KernelLoop() override { join_thread(); }
  void join() override { join_thread(); }

 private:
  void join_thread() {
    if (fork_guard_.in_child()) return abandon(std::move(thread_));  // it is not here
    if (thread_.joinable()) thread_.join();
  }

  const ForkGuard fork_guard_;
  std::thread thread_;
};

class KernelWorkerPool final : public WorkerPool {
 public:
  explicit KernelWorkerPool(const Clock& clock) : clock_(clock) {}
  ~KernelWorkerPool() override;

  Status start(const std::string& name, int threads);
  void submit(Task task) override;

 private:
  void work();
  void yield_for_work(std::unique_lock<std::mutex>& lock);
  bool has_work() const { return !tasks_.empty() || stopping_; }

  const Clock& clock_;
  std::mutex mutex_;
  std::condition_variable work_available_;
  std::deque<Task> tasks_;
  bool stopping_ = false;
  int sleeping_ = 0;
  bool yielding_ = false;               // one worker looks at work_hint_ without holding the mutex
  std::atomic<bool> work_hint_{false};  // set with every change of has_work() to true
  std::vector<std::thread> threads_;
};

KernelWorkerPool::~KernelWorkerPool() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    work_hint_.store(true, std::memory_order_relaxed);
  }
  work_available_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

Status KernelWorkerPool::start(const std::string& name, int threads) {
  for (int i = 0; i < threads; ++i) {
    const std::string suffix = fmt::format("-{}", i);
    BE_ASSIGN_OR_RETURN(
        std::thread thread,
        start_thread(name.substr(0, kNameLimit - suffix.size()) + suffix, [this] { work(); }));
    threads_.push_back(std::move(thread));
  }
  return {};
}

void KernelWorkerPool::submit(Task task) {
  bool wake;
  {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
    work_hint_.store(true, std::memory_order_relaxed);
    // A yielding worker takes the first task: it looks at the queue again before it sleeps.
    wake = sleeping_ > 0 && tasks_.size() > (yielding_ ? 1u : 0u);
  }
  if (wake) work_available_.notify_one();
}

void KernelWorkerPool::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    if (!has_work() && !yielding_) yield_for_work(lock);
    while (!has_work()) {
      ++sleeping_;
      work_available_.wait(lock);
      --sleeping_;
    }
    if (tasks_.empty()) return;  // stopping, and all that was submitted has been taken
    Task task = std::move(tasks_.front());
    tasks_.pop_front();
    lock.unlock();
    task();
    task = nullptr;  // what it owns dies here and not under the mutex
    lock.lock();
  }
}

void KernelWorkerPool::yield_for_work(std::unique_lock<std::mutex>& lock) {
  yielding_ = true;
  work_hint_.store(false, std::memory_order_relaxed);
  lock.unlock();
  const Time end = clock_.now() + kIdleYield;
  while (!work_hint_.load(std::memory_order_relaxed) && clock_.now() < end) sched_yield();
  lock.lock();
  yielding_ = false;
}

// In a forked child the workers are not there: no task runs, and nobody waits for them.
class WorkersOfThisProcess final : public WorkerPool {
 public:
  explicit WorkersOfThisProcess(std::unique_ptr<KernelWorkerPool> pool) : pool_(std::move(pool)) {}
  ~WorkersOfThisProcess() override {
    if (fork_guard_.in_child()) abandon(std::move(pool_));
  }
  void submit(Task task) override {
    if (fork_guard_.in_child()) return abandon(std::move(task));
    pool_->submit(std::move(task));
  }

 private:
  const ForkGuard fork_guard_;
  std::unique_ptr<KernelWorkerPool> pool_;
};

class KernelGate final : public Gate {
 public:
  void open() override {
    const std::lock_guard lock(mutex_);
    open_ = true;
    opened_.notify_all();  // under the mutex: the waiter may destroy us as soon as it has it
  }
  void wait() override {
    std::unique_lock lock(mutex_);
    opened_.wait(lock, [this] { return open_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable opened_;
  bool open_ = false;
};

}  // namespace

std::unique_ptr<Gate> KernelExecutor::make_gate() { return std::make_unique<KernelGate>(); }

Result<std::unique_ptr<Loop>> KernelExecutor::start_loop(const std::string& name, Poller&,
                                                         std::function<bool()> step) {
  BE_ASSIGN_OR_RETURN(std::thread thread, start_thread(name, [step = std::move(step)] {
                        while (step()) {
                        }
                      }));
  return std::unique_ptr<Loop>(std::make_unique<KernelLoop>(std::move(thread)));
}

Result<std::unique_ptr<WorkerPool>> KernelExecutor::start_workers(const std::string& name,
                                                                  int threads) {
  if (threads < 1) {
    return error(Code::kInvalidArgument, "worker pool '{}' needs at least 1 thread, not {}", name,
                 threads);
  }
  auto pool = std::make_unique<KernelWorkerPool>(clock_);
  BE_RETURN_IF_ERROR(pool->start(name, threads));
  return std::unique_ptr<WorkerPool>(std::make_unique<WorkersOfThisProcess>(std::move(pool)));
}

}  // namespace be
