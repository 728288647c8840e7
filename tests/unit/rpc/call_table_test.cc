#include "be/rpc/call_table.h"

#include <gtest/gtest.h>

#include <set>
#include <thread>

namespace be::rpc {
namespace {

constexpr uint32_t kNone = CallTable::kNone;

TEST(CallTable, GivesEachTakerASlotOfItsOwnUpToTheLimit) {
  CallTable table(100);
  std::set<uint32_t> taken;
  for (int i = 0; i < 100; ++i) taken.insert(table.take());
  EXPECT_EQ(taken.size(), 100u);
  EXPECT_FALSE(taken.contains(kNone));
  EXPECT_EQ(table.take(), kNone);
  table.release(17);
  EXPECT_EQ(table.take(), 17u);
}

TEST(CallTable, AnIdIsFoundOnlyWhileItsCallRuns) {
  CallTable table(8);
  const uint32_t index = table.take();
  const CallId id = table.id_of(index);
  EXPECT_NE(id, 0u);
  EXPECT_EQ(table.find(id), kNone) << "the I/O thread does not know it yet";
  table.slot(index).state = CallState::kSent;
  EXPECT_EQ(table.find(id), index);
  table.release(index);
  EXPECT_EQ(table.find(id), kNone);

  const uint32_t again = table.take();
  ASSERT_EQ(again, index);
  table.slot(again).state = CallState::kSent;
  EXPECT_EQ(table.find(id), kNone) << "the slot's next call has another id";
  EXPECT_EQ(table.find(table.id_of(again)), again);
}

TEST(CallTable, IdsFromTheWireAreNeverTrusted) {
  CallTable table(8);
  table.take();
  EXPECT_EQ(table.find(0), kNone);
  EXPECT_EQ(table.find(UINT64_MAX), kNone);
  EXPECT_EQ(table.find(CallId{1} << 32 | 7), kNone);
  EXPECT_EQ(table.find(CallId{1} << 32 | 4711), kNone);
}

TEST(CallTable, SubmittedCallsAreTakenOldestFirst) {
  CallTable table(8);
  const uint32_t a = table.take(), b = table.take(), c = table.take();
  EXPECT_TRUE(table.submit(b)) << "the inbox was empty: wake the I/O thread";
  EXPECT_FALSE(table.submit(a));
  EXPECT_FALSE(table.submit(c));
  EXPECT_EQ(table.take_submitted(), (std::vector<uint32_t>{b, a, c}));
  EXPECT_TRUE(table.take_submitted().empty());
  EXPECT_TRUE(table.submit(a));
}

TEST(CallTable, ThreadsNeverShareASlot) {
  constexpr int kThreads = 3, kCalls = 20000;
  CallTable table(64);
  std::vector<int> owner(64, -1);  // a slot held by two threads would be a race on its entry
  std::atomic<int> running{kThreads};
  std::vector<std::thread> callers;
  for (int t = 0; t < kThreads; ++t) {
    callers.emplace_back([&, t] {
      for (int i = 0; i < kCalls;) {
        const uint32_t index = table.take();
        if (index == kNone) {
          std::this_thread::yield();
          continue;
        }
        EXPECT_EQ(owner[index], -1);
        owner[index] = t;
        table.submit(index);
        ++i;
      }
      --running;
    });
  }
  int ended = 0;
  while (ended < kThreads * kCalls) {
    for (const uint32_t index : table.take_submitted()) {
      owner[index] = -1;
      table.release(index);
      ++ended;
    }
    if (running == 0 && ended < kThreads * kCalls) continue;
    std::this_thread::yield();
  }
  for (std::thread& caller : callers) caller.join();
  std::set<uint32_t> all;
  for (int i = 0; i < 64; ++i) all.insert(table.take());
  EXPECT_EQ(all.size(), 64u);
  EXPECT_FALSE(all.contains(kNone)) << "a slot was lost";
}

}  // namespace
}  // namespace be::rpc
