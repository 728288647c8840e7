// Everything at once, seed by seed: sizes, classes, closed sockets, hoarded memory, failure; and
// the smallest values of options and pools, alone and together.
//
// BE_ENGINE_SEEDS=1000 runs as many (36 otherwise), BE_ENGINE_FIRST_SEED=n begins with n.
#include <cstdlib>
#include <cstring>
#include <map>
#include <random>
#include <set>

#include "tests/unit/engine/engine_pair.h"

namespace be {
namespace {

class EngineRandom : public EnginePair {
 protected:
  static constexpr uint32_t kSockets = 9;

  // What one end has sent, and what the other must see of it.
  struct Direction {
    uint64_t next_cookie = 1;
    std::map<SocketId, uint64_t> last_seen;
    uint64_t seen = 0;
  };

  static std::string content(uint64_t cookie, size_t length) {
    std::string text(sizeof(cookie), '\0');
    std::memcpy(text.data(), &cookie, sizeof(cookie));
    return text + pattern(length - sizeof(cookie), static_cast<uint32_t>(cookie));
  }

  void send_something(EngineEnd& end, Direction& way) {
    const size_t scale[] = {8, 200, 6000, 60000, 400000};
    const size_t length = 8 + random_() % scale[random_() % 5];
    const auto klass = static_cast<MessageClass>(random_() % 2);
    // A direction of a socket carries one class.
    const SocketId socket = random_() % kSockets * 2 + static_cast<SocketId>(klass);
    auto memory = end.pool->allocate_buffer(length);
    if (!memory.ok()) return;
    const std::string text = content(way.next_cookie, length);
    std::memcpy(memory->data(), text.data(), length);
    if (end.send(socket, Message(*std::move(memory)), way.next_cookie, klass).ok()) {
      ++way.next_cookie;
    }
  }

  void listen(EngineEnd& end, Direction& way) {
    end.on_frame_hook = [&](FrameKind, SocketId socket, Buffer& payload) {
      ASSERT_GE(payload.size(), 8u);
      uint64_t cookie = 0;
      std::memcpy(&cookie, payload.data(), sizeof(cookie));
      ASSERT_EQ(text_of(payload), content(cookie, payload.size()));
      ASSERT_GT(cookie, way.last_seen[socket]) << "order of a socket";
      way.last_seen[socket] = cookie;
      ++way.seen;
      if (random_() % 8 == 0)
        end.frames.push_back({FrameKind::kMessage, socket, std::move(payload)});
    };
  }

  // Each accepted message was told of once; the good ones arrived.
  static void expect_complete(const EngineEnd& end, const Direction& way) {
    std::set<uint64_t> told;
    uint64_t good = 0;
    for (const auto& one : end.sent) {
      EXPECT_TRUE(told.insert(one.cookie).second) << "told twice of " << one.cookie;
      if (one.status.ok()) ++good;
    }
    EXPECT_EQ(told.size(), way.next_cookie - 1);
    EXPECT_GE(way.seen, good);
  }

  void act(EngineEnd& end, Direction& way) {
    switch (random_() % 32) {
      case 0:
        end.engine->close_socket(random_() % (2 * kSockets), error(Code::kClosed, "closed"));
        break;
      case 1:
        if (auto more = end.pool->allocate_buffer(100000); more.ok()) {
          end.frames.push_back({FrameKind::kMessage, 0, *std::move(more)});
        }
        break;
      case 2:
        end.frames.clear();
        break;
      default:
        if (end.engine->stats().queued_messages < 40) send_something(end, way);
    }
  }

  // A third of the values are the least that makes sense; in every fourth seed all are.
  EngineOptions draw(bool all_least) {
    const auto least_or = [&](uint32_t least, uint32_t other) {
      return all_least || random_() % 3 == 0 ? least : other;
    };
    EngineOptions one;
    one.send_queue_depth = least_or(2, 2 + random_() % 20);
    one.recv_queue_depth = least_or(2, 2 + random_() % 20);
    one.grants = least_or(2, 2 + random_() % 6);
    one.write_requests = least_or(2, 2 + random_() % 6);
    one.grant_cancels = least_or(1, 1 + random_() % 3);
    one.eager_bytes = least_or(128, 512u << random_() % 5);
    one.fragment_bytes = least_or(256, 1024u << random_() % 6);
    one.send_window_bytes =
        least_or(one.fragment_bytes, random_() % 2 ? 0 : one.fragment_bytes * (1 + random_() % 4));
    one.grant_budget_bytes = least_or(1, 100000 + random_() % 1000000);
    EXPECT_TRUE(one.check().ok());
    return one;
  }

  // What the engine itself takes, and a few blocks.
  size_t draw_cap(const EngineOptions& options, bool all_least) {
    if (!all_least && random_() % 2 == 0) return size_t{3} << 20;
    const size_t receives = options.recv_queue_depth + options.grants + 2 +
                            2 * options.write_requests + options.grant_cancels;
    const size_t own = receives * options.eager_bytes * 5 / 4 / kTestBlock + 2;
    return (own + 2 + random_() % 6) * kTestBlock;
  }

  static uint32_t from_environment(const char* name, uint32_t otherwise) {
    const char* text = std::getenv(name);
    return text != nullptr ? static_cast<uint32_t>(std::strtoul(text, nullptr, 10)) : otherwise;
  }

  void pass_time() {
    a->now += 10ms;
    b->now += 10ms;
  }

  std::mt19937 random_;
};

TEST_P(EngineRandom, EveryMessageEndsOnceInOrderWithItsContentWhateverHappens) {
  const uint32_t first = from_environment("BE_ENGINE_FIRST_SEED", 1);
  const uint32_t count = from_environment("BE_ENGINE_SEEDS", 36);
  for (uint32_t seed = first; seed < first + count; ++seed) {
    SCOPED_TRACE(seed);
    random_.seed(seed);
    const bool all_least = seed % 4 == 0;
    const EngineOptions of_a = draw(all_least);
    const EngineOptions of_b = draw(all_least);
    const size_t cap_a = draw_cap(of_a, all_least);
    make(of_a, of_b, cap_a, draw_cap(of_b, all_least));
    Direction from_a, from_b;
    listen(*a, from_b);
    listen(*b, from_a);
    for (int step = 0; step < 4000; ++step) {
      if (step % 2 == 0) act(*a, from_a);
      if (step % 3 == 0) act(*b, from_b);
      if (random_() % 2) a->pump();
      if (random_() % 2) b->pump();
      if (random_() % 64 == 0) pass_time();
    }
    ASSERT_EQ(a->failures + b->failures, 0) << a->failure.to_string() << b->failure.to_string();
    if (seed % 3 == 0) {
      a->engine->fail(error(Code::kUnavailable, "cable cut"));
      b->engine->fail(error(Code::kUnavailable, "cable cut"));
    } else {
      a->frames.clear();
      b->frames.clear();
      int turns = 0;
      EXPECT_TRUE(run([&] {
        // Slow enough that nobody takes the other for dead.
        if (++turns % 50 == 0) pass_time();
        a->frames.clear();
        b->frames.clear();
        return a->sent.size() == from_a.next_cookie - 1 && b->sent.size() == from_b.next_cookie - 1;
      })) << "everything ends: "
          << a->sent.size() << " of " << from_a.next_cookie - 1 << ", " << b->sent.size() << " of "
          << from_b.next_cookie - 1;
      EXPECT_TRUE(run(
          [&] { return a->engine->stats().open_grants + b->engine->stats().open_grants == 0; }));
      EXPECT_EQ(a->failures + b->failures, 0) << a->failure.to_string() << b->failure.to_string();
    }
    expect_complete(*a, from_a);
    expect_complete(*b, from_b);
    EXPECT_GT(from_a.seen + from_b.seen, 100u);
    TearDown();
  }
}

INSTANTIATE_TEST_SUITE_P(With, EngineRandom, testing::Values(Receives::kOwn, Receives::kShared),
                         receives_name);

}  // namespace
}  // namespace be
