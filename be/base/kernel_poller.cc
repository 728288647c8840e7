#include "be/base/kernel_poller.h"

#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <utility>

namespace be {
namespace {

constexpr int kBatch = 64;  // events of one system call; the rest comes next time
constexpr int kYieldsPerLook = 16;
constexpr uint64_t kWakeTag = UINT64_MAX;  // no descriptor has it: they are not negative

epoll_event request(uint64_t tag, uint32_t interest) {
  epoll_event event{};
  event.events = interest;
  event.data.u64 = tag;
  return event;
}

Status refused(int fd, const char* what) {
  return error_from_errno(errno, fmt::format("epoll_ctl({}) of descriptor {}", what, fd));
}

}  // namespace

Result<std::unique_ptr<Poller>> KernelPoller::create(const Clock& clock) {
  UniqueFd epoll(epoll_create1(EPOLL_CLOEXEC));
  if (!epoll.valid()) return error_from_errno(errno, "epoll_create1");
  UniqueFd wake_event(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!wake_event.valid()) return error_from_errno(errno, "eventfd");
  epoll_event event = request(kWakeTag, EPOLLIN);
  if (epoll_ctl(epoll.get(), EPOLL_CTL_ADD, wake_event.get(), &event) != 0) {
    return refused(wake_event.get(), "add");
  }
  return std::unique_ptr<Poller>(new KernelPoller(clock, std::move(epoll), std::move(wake_event)));
}

KernelPoller::KernelPoller(const Clock& clock, UniqueFd epoll, UniqueFd wake_event)
    : clock_(clock), epoll_(std::move(epoll)), wake_event_(std::move(wake_event)) {}

Status KernelPoller::add(int fd, PollHandler* handler, bool writable) {
  if (fork_guard_.in_child()) return forked_status("the poller");
  if (fd < 0) return error(Code::kInvalidArgument, "descriptor {} cannot be waited for", fd);
  if (find(fd) != nullptr) {
    return error(Code::kAlreadyExists, "descriptor {} is registered already", fd);
  }
  const auto index = static_cast<size_t>(fd);
  if (index >= registrations_.size()) registrations_.resize(index + 1);
  Registration& registration = registrations_[index];
  ++registration.generation;
  registration.interest = EPOLLIN | (writable ? EPOLLOUT : 0u);
  epoll_event event = request(tag_of(fd), registration.interest);
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) return refused(fd, "add");
  registration.handler = handler;
  return {};
}

Status KernelPoller::set_writable(int fd, bool writable) {
  return change_interest(fd, EPOLLOUT, writable);
}

Status KernelPoller::set_readable(int fd, bool readable) {
  return change_interest(fd, EPOLLIN, readable);
}

void KernelPoller::remove(int fd) {
  Registration* registration = find(fd);
  if (registration == nullptr) return;
  registration->handler = nullptr;
  if (fork_guard_.in_child()) return;
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
}

int KernelPoller::wait(Time until) {
  if (fork_guard_.in_child()) return 0;
  Nanoseconds timeout{0};
  const Time now = clock_.now();
  if (until > now) {
    State expected = State::kRunning;
    const bool may_sleep = state_.compare_exchange_strong(expected, State::kSleeping);
    if (may_sleep) timeout = until == kNever ? Nanoseconds::max() : until - now;
  }
  epoll_event events[kBatch];
  const int count = wait_for_events(events, kBatch, timeout);
  state_.exchange(State::kRunning);
  return dispatch(events, count);
}

void KernelPoller::wake() {
  if (state_.exchange(State::kWoken) != State::kSleeping || fork_guard_.in_child()) return;
  const uint64_t one = 1;
  // Fails only when the counter is full, and then the owner is being woken already.
  [[maybe_unused]] const ssize_t written = ::write(wake_event_.get(), &one, sizeof(one));
}

// A yield that hands the core over is an involuntary switch to the kernel; one that finds nobody
// waiting is none. Asking how many there were is a system call too: once in many yields.
bool KernelPoller::yield() {
  sched_yield();
  if (++yields_ % kYieldsPerLook != 0) return core_shared_;
  rusage usage{};
  if (getrusage(RUSAGE_THREAD, &usage) != 0) return core_shared_;
  core_shared_ = usage.ru_nivcsw - switches_ >= kYieldsPerLook / 2;
  switches_ = usage.ru_nivcsw;
  return core_shared_;
}

KernelPoller::Registration* KernelPoller::find(int fd) {
  const auto index = static_cast<size_t>(fd);
  if (fd < 0 || index >= registrations_.size()) return nullptr;
  Registration& registration = registrations_[index];
  return registration.handler ? &registration : nullptr;
}

uint64_t KernelPoller::tag_of(int fd) const {
  const auto index = static_cast<size_t>(fd);
  return (static_cast<uint64_t>(registrations_[index].generation) << 32) | index;
}

Status KernelPoller::change_interest(int fd, uint32_t event, bool on) {
  Registration* registration = find(fd);
  if (registration == nullptr) {
    return error(Code::kNotFound, "descriptor {} is not registered", fd);
  }
  if (fork_guard_.in_child()) return forked_status("the poller");
  const uint32_t interest = on ? registration->interest | event : registration->interest & ~event;
  if (interest == registration->interest) return {};
  epoll_event changed = request(tag_of(fd), interest);
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &changed) != 0) return refused(fd, "modify");
  registration->interest = interest;
  return {};
}

int KernelPoller::wait_for_events(epoll_event* events, int capacity, Nanoseconds timeout) {
  const bool for_ever = timeout == Nanoseconds::max();
  if (has_pwait2_ && timeout > 0ns) {
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(timeout);
    const timespec span{.tv_sec = static_cast<time_t>(seconds.count()),
                        .tv_nsec = static_cast<long>((timeout - seconds).count())};
    const int count =
        epoll_pwait2(epoll_.get(), events, capacity, for_ever ? nullptr : &span, nullptr);
    if (count >= 0 || errno != ENOSYS) return std::max(count, 0);  // EINTR: nothing was ready
    has_pwait2_ = false;
  }
  const auto rounded_up = std::chrono::ceil<std::chrono::milliseconds>(
      std::min(timeout, Nanoseconds(std::chrono::milliseconds(INT_MAX))));
  const int milliseconds = for_ever ? -1 : static_cast<int>(rounded_up.count());
  return std::max(epoll_wait(epoll_.get(), events, capacity, milliseconds), 0);
}

int KernelPoller::dispatch(const epoll_event* events, int count) {
  int called = 0;
  for (int i = 0; i < count; ++i) {
    if (events[i].data.u64 == kWakeTag) {
      uint64_t ignored;
      [[maybe_unused]] const ssize_t bytes = ::read(wake_event_.get(), &ignored, sizeof(ignored));
      continue;
    }
    const auto fd = static_cast<int>(static_cast<uint32_t>(events[i].data.u64));
    Registration* registration = find(fd);
    if (registration == nullptr || tag_of(fd) != events[i].data.u64) continue;  // removed since
    // An earlier handler of this batch may have lost interest for this one.
    const uint32_t ready = events[i].events & (registration->interest | EPOLLERR | EPOLLHUP);
    if (ready == 0) continue;
    registration->handler->on_ready(ready & (EPOLLIN | EPOLLERR | EPOLLHUP), ready & EPOLLOUT);
    ++called;
  }
  return called;
}

}  // namespace be
