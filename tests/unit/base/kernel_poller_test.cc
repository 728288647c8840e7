// The Poller of the kernel World, over eventfds and pipes. Waits that must not sleep are given
// kNever: a defect hangs the test, which has a time limit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "be/base/unique_fd.h"
#include "be/base/world.h"

namespace be {
namespace {

class Recorder final : public PollHandler {
 public:
  virtual ~Recorder() = default;
  void on_ready(bool readable, bool writable) override {
    ++calls;
    was_readable = readable;
    was_writable = writable;
    if (action) action();
  }

  int calls = 0;
  bool was_readable = false;
  bool was_writable = false;
  std::function<void()> action;
};

UniqueFd make_event(bool set) { return UniqueFd(eventfd(set ? 1 : 0, EFD_NONBLOCK | EFD_CLOEXEC)); }

class KernelPollerTest : public testing::Test {
 protected:
  void SetUp() override {
    Result<std::unique_ptr<Poller>> poller = kernel_world().make_poller();
    ASSERT_TRUE(poller.ok()) << poller.status().to_string();
    poller_ = std::move(poller).value();
  }

  int look() { return poller_->wait(Time::min()); }

  std::unique_ptr<Poller> poller_;
  Recorder handler_;
};

TEST_F(KernelPollerTest, ReportsReadinessAgainWhileItLasts) {
  const UniqueFd event = make_event(true);
  ASSERT_TRUE(poller_->add(event.get(), &handler_).ok());
  EXPECT_EQ(poller_->wait(kNever), 1);
  EXPECT_EQ(poller_->wait(kNever), 1);
  EXPECT_TRUE(handler_.was_readable);
  EXPECT_FALSE(handler_.was_writable);
  eventfd_t value;
  eventfd_read(event.get(), &value);
  EXPECT_EQ(look(), 0);
}

TEST_F(KernelPollerTest, WaitsNoLongerThanAsked) {
  const Time start = kernel_world().now();
  EXPECT_EQ(poller_->wait(start + 2ms), 0);
  EXPECT_GE(kernel_world().now() - start, 2ms);
}

TEST_F(KernelPollerTest, WritabilityIsReportedOnlyWhileAskedFor) {
  const UniqueFd event = make_event(false);
  ASSERT_TRUE(poller_->add(event.get(), &handler_, true).ok());
  EXPECT_EQ(look(), 1);
  EXPECT_TRUE(handler_.was_writable);
  EXPECT_FALSE(handler_.was_readable);
  ASSERT_TRUE(poller_->set_writable(event.get(), false).ok());
  EXPECT_EQ(look(), 0);
  ASSERT_TRUE(poller_->set_writable(event.get(), true).ok());
  EXPECT_EQ(look(), 1);
}

TEST_F(KernelPollerTest, ReadingCanBePaused) {
  const UniqueFd event = make_event(true);
  ASSERT_TRUE(poller_->add(event.get(), &handler_).ok());
  ASSERT_TRUE(poller_->set_readable(event.get(), false).ok());
  EXPECT_EQ(look(), 0);
  ASSERT_TRUE(poller_->set_readable(event.get(), true).ok());
  EXPECT_EQ(look(), 1);
}

TEST_F(KernelPollerTest, HangUpIsReportedAsReadableEvenWhileReadingIsPaused) {
  int pair[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
  const UniqueFd mine(pair[0]);
  UniqueFd peers(pair[1]);
  ASSERT_TRUE(poller_->add(mine.get(), &handler_).ok());
  ASSERT_TRUE(poller_->set_readable(mine.get(), false).ok());
  EXPECT_EQ(look(), 0);
  peers.reset();
  EXPECT_EQ(look(), 1);
  EXPECT_TRUE(handler_.was_readable);
}

TEST_F(KernelPollerTest, RemovedDescriptorIsSilentAndMayBeRemovedTwice) {
  const UniqueFd event = make_event(true);
  ASSERT_TRUE(poller_->add(event.get(), &handler_).ok());
  poller_->remove(event.get());
  poller_->remove(event.get());
  poller_->remove(12345);
  poller_->remove(-1);
  EXPECT_EQ(look(), 0);
}

TEST_F(KernelPollerTest, AddingTwiceOrABadDescriptorIsAnError) {
  const UniqueFd event = make_event(false);
  ASSERT_TRUE(poller_->add(event.get(), &handler_).ok());
  EXPECT_EQ(poller_->add(event.get(), &handler_).code(), Code::kAlreadyExists);
  EXPECT_FALSE(poller_->add(-1, &handler_).ok());
  UniqueFd closed = make_event(false);
  const int number = closed.get();
  closed.reset();
  EXPECT_FALSE(poller_->add(number, &handler_).ok());
  EXPECT_EQ(poller_->set_writable(number, true).code(), Code::kNotFound);
}

TEST_F(KernelPollerTest, HandlerMayRemoveItselfAndOthersOfTheSameBatch) {
  std::vector<UniqueFd> events;
  std::vector<Recorder> handlers(5);
  for (Recorder& handler : handlers) {
    events.push_back(make_event(true));
    handler.action = [this, &events] {
      for (const UniqueFd& event : events) poller_->remove(event.get());
    };
    ASSERT_TRUE(poller_->add(events.back().get(), &handler).ok());
  }
  EXPECT_EQ(look(), 1);
  EXPECT_EQ(look(), 0);
}

// The event of the closed descriptor is still in the batch when its number is in use again.
TEST_F(KernelPollerTest, EventOfAClosedDescriptorDoesNotReachTheNextOwnerOfItsNumber) {
  UniqueFd events[2] = {make_event(true), make_event(true)};
  Recorder handlers[2];
  Recorder newcomer;
  UniqueFd reused;
  for (int i = 0; i < 2; ++i) {
    handlers[i].action = [&, other = 1 - i] {
      const int number = events[other].get();
      poller_->remove(number);
      events[other].reset();
      reused = make_event(false);
      ASSERT_EQ(reused.get(), number);
      ASSERT_TRUE(poller_->add(number, &newcomer).ok());
    };
    ASSERT_TRUE(poller_->add(events[i].get(), &handlers[i]).ok());
  }
  EXPECT_EQ(look(), 1);
  EXPECT_EQ(newcomer.calls, 0);
}

TEST_F(KernelPollerTest, EventsBeyondOneBatchAreNotLost) {
  std::vector<UniqueFd> events;
  std::vector<Recorder> handlers(100);
  for (Recorder& handler : handlers) {
    events.push_back(make_event(true));
    ASSERT_TRUE(poller_->add(events.back().get(), &handler).ok());
    handler.action = [this, fd = events.back().get()] { poller_->remove(fd); };
  }
  EXPECT_EQ(look() + look(), 100);
}

TEST_F(KernelPollerTest, WakeBeforeTheWaitEndsThatWait) {
  poller_->wake();
  poller_->wake();
  EXPECT_EQ(poller_->wait(kNever), 0);
}

TEST_F(KernelPollerTest, WakeIsNotCarriedBeyondTheNextWait) {
  poller_->wake();
  look();
  const Time start = kernel_world().now();
  poller_->wait(start + 2ms);
  EXPECT_GE(kernel_world().now() - start, 2ms);
}

// A lost wake-up hangs: the waker publishes, wakes, and waits for the answer.
TEST_F(KernelPollerTest, EveryWakeFromAnotherThreadIsNoticed) {
  constexpr int kRounds = 20'000;
  std::atomic<int> asked{0};
  std::atomic<int> answered{0};
  std::thread waker([&] {
    for (int round = 1; round <= kRounds; ++round) {
      asked.store(round, std::memory_order_relaxed);
      poller_->wake();
      while (answered.load(std::memory_order_relaxed) < round) std::this_thread::yield();
    }
  });
  while (answered.load(std::memory_order_relaxed) < kRounds) {
    const int round = asked.load(std::memory_order_relaxed);
    if (round == answered.load(std::memory_order_relaxed)) {
      poller_->wait(kNever);
    } else {
      answered.store(round, std::memory_order_relaxed);
    }
  }
  waker.join();
}

}  // namespace
}  // namespace be
