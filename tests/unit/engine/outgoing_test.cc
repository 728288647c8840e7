#include "be/engine/outgoing.h"

#include <gtest/gtest.h>

namespace be {
namespace {

TEST(MessageList, IsFirstInFirstOut) {
  OutgoingMessage a, b;
  MessageList list;
  list.push_back(&a);
  list.push_back(&b);
  EXPECT_EQ(list.pop_front(), &a);
  EXPECT_EQ(list.pop_front(), &b);
  EXPECT_TRUE(list.empty());
}

TEST(MessageList, RemovesFromAnywhereAndStaysWhole) {
  OutgoingMessage m[4];
  for (int removed = 0; removed < 3; ++removed) {
    MessageList list;
    for (int i = 0; i < 3; ++i) list.push_back(&m[i]);
    list.remove(&m[removed]);
    list.push_back(&m[3]);
    for (int i = 0; i < 4; ++i) {
      if (i == removed) continue;
      EXPECT_EQ(list.pop_front(), &m[i]);
    }
    EXPECT_TRUE(list.empty());
  }
}

TEST(MessagePool, RecyclesWhatIsGivenBack) {
  MessagePool pool;
  OutgoingMessage* first = pool.take();
  first->offset = 5;
  first->stage = OutgoingMessage::Stage::kGranted;
  first->result = error(Code::kClosed, "closed");
  pool.give(first);
  EXPECT_EQ(pool.alive(), 0u);
  OutgoingMessage* again = pool.take();
  EXPECT_EQ(again, first);
  EXPECT_FALSE(again->begun());
  EXPECT_TRUE(again->result.ok());
  EXPECT_EQ(again->stage, OutgoingMessage::Stage::kQueued);
  pool.give(again);
}

}  // namespace
}  // namespace be
