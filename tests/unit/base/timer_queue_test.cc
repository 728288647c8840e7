#include "be/base/timer_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <random>
#include <vector>

namespace be {
namespace {

using testing::ElementsAre;

constexpr Time at(int64_t nanoseconds) { return Time(Nanoseconds(nanoseconds)); }

class TimerQueueTest : public testing::Test {
 protected:
  Task note(int value) {
    return [this, value] { ran_.push_back(value); };
  }

  TimerQueue queue_;
  std::vector<int> ran_;
};

TEST_F(TimerQueueTest, NextIsNeverWhileThereIsNoTimer) {
  EXPECT_EQ(queue_.next(), kNever);
  EXPECT_TRUE(queue_.empty());
  EXPECT_EQ(queue_.run_due(at(1'000'000)), 0);
}

TEST_F(TimerQueueTest, RunsInOrderOfTimeAndOnlyWhatIsDue) {
  queue_.schedule(at(30), note(3));
  queue_.schedule(at(10), note(1));
  queue_.schedule(at(20), note(2));
  EXPECT_EQ(queue_.next(), at(10));
  EXPECT_EQ(queue_.run_due(at(9)), 0);
  EXPECT_EQ(queue_.run_due(at(20)), 2);
  EXPECT_THAT(ran_, ElementsAre(1, 2));
  EXPECT_EQ(queue_.next(), at(30));
}

TEST_F(TimerQueueTest, EqualTimesRunInTheOrderInWhichTheyWereSet) {
  std::vector<int> expected;
  for (int i = 0; i < 50; ++i) {
    queue_.schedule(at(5), note(i));
    expected.push_back(i);
  }
  queue_.run_due(at(5));
  EXPECT_EQ(ran_, expected);
}

TEST_F(TimerQueueTest, CancelledTimerDoesNotRun) {
  queue_.schedule(at(10), note(1));
  const TimerId id = queue_.schedule(at(20), note(2));
  EXPECT_TRUE(queue_.cancel(id));
  EXPECT_FALSE(queue_.cancel(id));
  queue_.run_due(at(100));
  EXPECT_THAT(ran_, ElementsAre(1));
}

TEST_F(TimerQueueTest, CancelOfATimerThatHasRunOrNeverWasIsFalse) {
  const TimerId id = queue_.schedule(at(10), note(1));
  queue_.run_due(at(10));
  EXPECT_FALSE(queue_.cancel(id));
  EXPECT_FALSE(queue_.cancel(0));
  EXPECT_FALSE(queue_.cancel(UINT64_MAX));
}

TEST_F(TimerQueueTest, OldIdDoesNotCancelTheTimerThatTookItsPlace) {
  const TimerId old = queue_.schedule(at(10), note(1));
  ASSERT_TRUE(queue_.cancel(old));
  const TimerId present = queue_.schedule(at(10), note(2));
  EXPECT_NE(old, present);
  EXPECT_FALSE(queue_.cancel(old));
  EXPECT_EQ(queue_.run_due(at(10)), 1);
  EXPECT_THAT(ran_, ElementsAre(2));
}

TEST_F(TimerQueueTest, TimerCannotCancelItselfButCanCancelAnotherThatIsDue) {
  TimerId self = 0;
  TimerId other = 0;
  bool self_cancelled = true;
  bool other_cancelled = false;
  self = queue_.schedule(at(10), [&] {
    self_cancelled = queue_.cancel(self);
    other_cancelled = queue_.cancel(other);
  });
  other = queue_.schedule(at(10), note(2));
  EXPECT_EQ(queue_.run_due(at(10)), 1);
  EXPECT_FALSE(self_cancelled);
  EXPECT_TRUE(other_cancelled);
  EXPECT_THAT(ran_, ElementsAre());
}

TEST_F(TimerQueueTest, WhatIsAddedMeanwhileAndDueRunsInTheSameCall) {
  queue_.schedule(at(10), [this] {
    note(1)();
    queue_.schedule(at(15), note(2));
    queue_.schedule(at(25), note(3));
  });
  EXPECT_EQ(queue_.run_due(at(20)), 2);
  EXPECT_THAT(ran_, ElementsAre(1, 2));
  EXPECT_EQ(queue_.next(), at(25));
}

// Sets a timer in its destructor: the queue must be usable while an action dies.
struct SchedulesWhenDestroyed {
  TimerQueue* queue;
  explicit SchedulesWhenDestroyed(TimerQueue* owner) : queue(owner) {}
  SchedulesWhenDestroyed(SchedulesWhenDestroyed&& other) noexcept
      : queue(std::exchange(other.queue, nullptr)) {}
  ~SchedulesWhenDestroyed() {
    if (queue) queue->schedule(at(7), [] {});
  }
  void operator()() {}
};

TEST_F(TimerQueueTest, DestructorOfACancelledActionMayUseTheQueue) {
  const TimerId id = queue_.schedule(at(1), SchedulesWhenDestroyed(&queue_));
  EXPECT_TRUE(queue_.cancel(id));
  EXPECT_EQ(queue_.next(), at(7));
  EXPECT_EQ(queue_.size(), 1u);
}

TEST_F(TimerQueueTest, ActionIsDestroyedWhenCancelledAndAfterItRan) {
  auto cancelled = std::make_shared<int>();
  auto run = std::make_shared<int>();
  const TimerId id = queue_.schedule(at(1), [cancelled] {});
  queue_.schedule(at(1), [run] {});
  EXPECT_EQ(cancelled.use_count(), 2);
  queue_.cancel(id);
  EXPECT_EQ(cancelled.use_count(), 1);
  queue_.run_due(at(1));
  EXPECT_EQ(run.use_count(), 1);
}

TEST_F(TimerQueueTest, AgreesWithASortedMapOverRandomUse) {
  std::map<std::pair<int64_t, int>, TimerId> model;  // (time, order of setting) -> id
  std::mt19937 random(20261130);
  int order = 0;
  int64_t now = 0;
  std::vector<int> expected;
  for (int step = 0; step < 20'000; ++step) {
    const unsigned choice = random() % 10;
    if (choice < 5) {
      const int64_t when = now + static_cast<int64_t>(random() % 1000);
      model[{when, order}] = queue_.schedule(at(when), note(order));
      ++order;
    } else if (choice < 8 && !model.empty()) {
      auto victim = model.begin();
      std::advance(victim, random() % model.size());
      ASSERT_TRUE(queue_.cancel(victim->second));
      model.erase(victim);
    } else {
      now += static_cast<int64_t>(random() % 100);
      while (!model.empty() && model.begin()->first.first <= now) {
        expected.push_back(model.begin()->first.second);
        model.erase(model.begin());
      }
      queue_.run_due(at(now));
      ASSERT_EQ(ran_.size(), expected.size());
    }
    ASSERT_EQ(queue_.size(), model.size());
    ASSERT_EQ(queue_.next(), model.empty() ? kNever : at(model.begin()->first.first));
  }
  EXPECT_EQ(ran_, expected);
}

TEST(Time, AddingAnUnboundedDelayStaysNever) {
  EXPECT_EQ(saturating_add(at(5), Nanoseconds::max()), kNever);
  EXPECT_EQ(saturating_add(at(5), 10ns), at(15));
}

}  // namespace
}  // namespace be
