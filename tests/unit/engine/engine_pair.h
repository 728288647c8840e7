// Two engines in one process over softnic, pumped by hand: no thread, no sleep, time as told.
#pragma once

#include <gtest/gtest.h>
#include <infiniband/verbs.h>

#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "be/engine/engine.h"
#include "be/engine/shared_receives.h"
#include "be/memory/registered_pool.h"
#include "be/softnic/softnic_device.h"

namespace be {

inline constexpr uint8_t kToken[16] = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3};
inline constexpr size_t kTestBlock = size_t{64} << 10;
inline constexpr uint32_t kTestCompletions = 1024;

// A device with memory, a channel and a CQ: what an I/O thread would own.
class Station {
 public:
  explicit Station(size_t cap_bytes) {
    device = open_softnic({}).value();
    channel = device->create_event_channel().value();
    cq = device->create_cq(kTestCompletions, channel.get(), nullptr, nullptr).value();
    pool = RegisteredPool::create({.block_bytes = kTestBlock, .cap_bytes = cap_bytes}).value();
    EXPECT_EQ(pool->add_device(device.get()).value(), 0u);
  }
  ~Station() {
    EXPECT_EQ(pool->stats().allocations, 0u) << "memory is back where it was";
    EXPECT_TRUE(device->destroy_cq(cq).ok());
    channel.reset();
    pool.reset();
  }

  Buffer buffer(const std::string& content) {
    Buffer made = pool->allocate_buffer(content.size()).value();
    std::memcpy(made.data(), content.data(), content.size());
    return made;
  }

  std::unique_ptr<Device> device;
  std::unique_ptr<EventChannel> channel;
  ibv_cq* cq = nullptr;
  std::unique_ptr<RegisteredPool> pool;
};

inline std::string text_of(const Buffer& buffer) {
  return {reinterpret_cast<const char*>(buffer.data()), buffer.size()};
}

// `length` bytes that differ by place and by seed.
inline std::string pattern(size_t length, uint32_t seed) {
  std::string text(length, '\0');
  uint32_t state = seed * 2654435761u + 1;
  for (char& c : text) {
    state = state * 1664525u + 1013904223u;
    c = static_cast<char>(state >> 24);
  }
  return text;
}

// One engine and what its user hears.
class EngineEnd final : public Station, public EngineUser {
 public:
  explicit EngineEnd(const EngineOptions& options = {}, size_t cap_bytes = size_t{64} << 20)
      : Station(cap_bytes) {
    Engine::Resources resources;
    resources.device = device.get();
    resources.pool = pool.get();
    resources.cq = cq;
    resources.engine_index = 5;
    resources.peer = "peer";
    if (options.shared_receives != 0) {
      shared = std::make_unique<SharedReceives>(SharedReceives::Resources{
          .device = device.get(),
          .pool = pool.get(),
          .device_index = 0,
          .entries = options.shared_receives,
          .bytes = options.eager_bytes,
          .completions = kTestCompletions,
          .wake = {},
      });
      resources.shared_receives = shared.get();
    }
    auto made = Engine::create(resources, options, this);
    EXPECT_TRUE(made.ok()) << made.status().to_string();
    if (made.ok()) engine = std::move(made).value();
  }
  virtual ~EngineEnd() {
    frames.clear();
    if (engine && engine->state() != Engine::State::kInit) {
      engine->fail(error(Code::kClosed, "end of test"));
      for (int i = 0; i < 100000 && engine->state() != Engine::State::kDead; ++i) {
        if (help) help();
        pump();
        now += 1ms;
      }
      EXPECT_EQ(engine->state(), Engine::State::kDead);
    }
    frames.clear();
    engine.reset();
  }

  struct Frame {
    FrameKind kind;
    SocketId socket;
    Buffer payload;
  };
  struct Sent {
    SocketId socket;
    uint64_t cookie;
    Status status;
  };

  void on_frame(FrameKind kind, SocketId socket, Buffer payload) override {
    if (on_frame_hook) {
      on_frame_hook(kind, socket, payload);
      return;
    }
    frames.push_back({kind, socket, std::move(payload)});
  }
  void on_sent(SocketId socket, uint64_t cookie, const Status& status) override {
    EXPECT_EQ(failures, 0) << "on_sent after on_engine_failed";
    sent.push_back({socket, cookie, status});
    if (on_sent_hook) on_sent_hook(socket, cookie, status);
  }
  void on_engine_failed(const Status& status) override {
    ++failures;
    failure = status;
  }

  // One turn of the loop that an I/O thread would run.
  void pump() {
    take_events();
    poll();
    if (engine->wants_progress()) engine->progress(now);
    if (engine->next_tick() <= now) engine->tick(now);
  }
  void take_events() {
    std::vector<DeviceEvent> events;
    channel->take_events(events);
    for (const DeviceEvent& event : events) {
      if (event.kind == DeviceEvent::Kind::kConnected) engine->on_connected(event.status, now);
      if (event.kind == DeviceEvent::Kind::kQpFatal) engine->fail(event.status);
      if (event.kind == DeviceEvent::Kind::kQuiesced) engine->on_quiesced(event.token);
      if (event.kind == DeviceEvent::Kind::kLastWqeReached) engine->on_last_receive();
    }
  }
  int poll() {
    ibv_wc completions[16];
    const int count = ibv_poll_cq(cq, 16, completions);
    for (int i = 0; i < count; ++i) {
      EXPECT_TRUE(Engine::engine_index_of(completions[i].wr_id) == 5u ||
                  (shared != nullptr && SharedReceives::owns(completions[i].wr_id)));
      engine->on_completion(completions[i]);
    }
    if (shared != nullptr) {
      EXPECT_TRUE(shared->polled(static_cast<uint32_t>(count), count < 16, now).ok());
      if (shared->memory_freed() || now >= shared->next_retry()) {
        EXPECT_TRUE(shared->retry(now).ok());
      }
      EXPECT_EQ(shared->broken_invariant(), nullptr);
    }
    return count;
  }

  Status send(SocketId socket, Message message, uint64_t cookie = 1,
              MessageClass klass = MessageClass::kRequest, FrameKind kind = FrameKind::kMessage) {
    return engine->send(socket, kind, klass, message, cookie);
  }
  Status send_text(SocketId socket, const std::string& text, uint64_t cookie = 1,
                   MessageClass klass = MessageClass::kRequest) {
    return send(socket, Message(buffer(text)), cookie, klass);
  }

  std::unique_ptr<SharedReceives> shared;  // with options.shared_receives
  std::unique_ptr<Engine> engine;
  Time now{};
  std::vector<Frame> frames;
  std::vector<Sent> sent;
  int failures = 0;
  Status failure;
  std::function<void(FrameKind, SocketId, Buffer&)> on_frame_hook;
  std::function<void(SocketId, uint64_t, const Status&)> on_sent_hook;
  std::function<void()> help;  // lets the other end play its part while this one dies
};

inline void start_connecting(EngineEnd& a, EngineEnd& b) {
  EXPECT_TRUE(
      a.engine->connect(b.engine->local_terms(), b.engine->local_endpoint().value(), kToken, true)
          .ok());
  EXPECT_TRUE(
      b.engine->connect(a.engine->local_terms(), a.engine->local_endpoint().value(), kToken, false)
          .ok());
}

// Whether the receives of both ends are their own, or of an SRQ with little to spare.
enum class Receives : uint8_t { kOwn, kShared };

inline EngineOptions with_receives(EngineOptions options, Receives receives) {
  if (receives == Receives::kOwn) return options;
  options.shared_receives = 1;  // so that initial_credits knows
  options.shared_receives =
      reserved_receives(options) + initial_credits(options) + options.recv_queue_depth / 2;
  return options;
}

inline std::string receives_name(const testing::TestParamInfo<Receives>& tested) {
  return tested.param == Receives::kOwn ? "OwnReceives" : "SharedReceives";
}

class EnginePair : public testing::TestWithParam<Receives> {
 protected:
  void make(const EngineOptions& options = {}, size_t cap_bytes = size_t{64} << 20) {
    make(options, options, cap_bytes, cap_bytes);
  }
  void make(const EngineOptions& of_a, const EngineOptions& of_b, size_t cap_a, size_t cap_b) {
    a = std::make_unique<EngineEnd>(with_receives(of_a, GetParam()), cap_a);
    b = std::make_unique<EngineEnd>(with_receives(of_b, GetParam()), cap_b);
    a->help = [this] { b->pump(); };
    b->help = [this] {
      if (a) a->take_events();
    };
    start_connecting(*a, *b);
    ASSERT_TRUE(run([this] {
      return a->engine->state() == Engine::State::kReady &&
             b->engine->state() == Engine::State::kReady;
    }));
  }
  void TearDown() override {
    if (a) a->frames.clear();
    if (b) b->frames.clear();
    a.reset();
    b.reset();
  }

  // Pumps both ends until `done`.
  bool run(const std::function<bool()>& done, int turns = 200000) {
    for (int i = 0; i < turns; ++i) {
      if (done()) return true;
      a->pump();
      b->pump();
    }
    return done();
  }
  void pump(int turns) {
    run([] { return false; }, turns);
  }

  std::unique_ptr<EngineEnd> a;
  std::unique_ptr<EngineEnd> b;
};

}  // namespace be
