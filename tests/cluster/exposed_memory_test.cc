// Memory that a peer may touch is not ours yet (blueprint 3): a peer is stopped in the middle of a
// copy, our call ends, the whole pool is handed out again and filled, the peer goes on. Nothing of
// what was handed out may change, and what the peer reads must be what was sent.
//
//   what the peer is stopped in   writing its reply into our grant | reading our request |
//                                 not yet answering our grant
//   how our call ends             its deadline | cancelled | the engine fails by keepalive
//   what becomes of the peer      it goes on | it is killed there
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <sstream>

#include "be/base/failpoint.h"
#include "tests/cluster/common/member.h"
#include "tests/cluster/common/peer_role.h"

namespace be::cluster {
namespace {

constexpr Nanoseconds kPatience = 20s;
constexpr Nanoseconds kReturn = 2s;  // within which memory must be back
constexpr size_t kReplyBytes = 300'000;
constexpr size_t kRequestBytes = 4096;  // fetched by the peer
constexpr uint64_t kSeed = 77;
constexpr uint8_t kFilling = 0xa5;

constexpr const char* kReply = "test.reply";    // text: failpoint to stop at while replying
constexpr const char* kArm = "test.arm";        // text: failpoint to stop at
constexpr const char* kVerify = "test.verify";  // bytes: kRequestBytes of kSeed

enum class Doing { kWriting, kReading, kNotAnswering };
enum class CallEnd { kDeadline, kCancelled, kEngineFailed };
enum class Becomes { kGoesOn, kIsKilled };

NodeOptions options_of(bool fast_keepalive) {
  NodeOptions options = member_options();
  options.memory.cap_bytes = size_t{16} << 20;
  options.engine.keepalive_interval = fast_keepalive ? 50ms : 20s;
  options.engine.keepalive_timeout = fast_keepalive ? 200ms : 100s;
  return options;
}

void arm_by(const Buffer& text) {
  failpoint::arm({reinterpret_cast<const char*>(text.data()), text.size()}, 1,
                 failpoint::Action::kStop);
}

// Argument: "fast" or "slow" keepalive.
const PeerRole kHolderRole("holder", [](const std::vector<std::string>& arguments) {
  Member member(options_of(arguments.at(0) == "fast"), [](Member& self, rpc::Server& server) {
    const auto add = [&](const char* name, rpc::Handler handler) {
      server.add_method(name, rpc::RunOn::kIoThread, std::move(handler)).ignore();
    };
    add(kReply, [&self](rpc::ServerCall call) {
      Buffer reply = patterned(self.pool(), kReplyBytes, kSeed);
      arm_by(call.body());
      call.reply({std::move(reply), {}});
    });
    add(kArm, [](rpc::ServerCall call) {
      arm_by(call.body());
      call.reply({});
    });
    add(kVerify, [](rpc::ServerCall call) {
      say(has_pattern(call.body(), kRequestBytes, kSeed) ? "intact" : "corrupt");
      call.reply({});
    });
  });
  say(member.address().to_string());
  for (;;) member.drive_for(1s);
  return 0;
});

// All that the pool has, filled.
class Reuse {
 public:
  explicit Reuse(RegisteredPool& pool) {
    for (const size_t size :
         {kReplyBytes, size_t{65536}, size_t{8192}, kRequestBytes, size_t{512}, size_t{64}}) {
      for (auto buffer = pool.allocate_buffer(size); buffer.ok();
           buffer = pool.allocate_buffer(size)) {
        std::memset(buffer->data(), kFilling, size);
        buffers_.push_back(std::move(buffer).value());
      }
    }
  }

  size_t count() const { return buffers_.size(); }
  size_t changed() const {
    return static_cast<size_t>(
        std::count_if(buffers_.begin(), buffers_.end(), [](const Buffer& buffer) {
          return !std::all_of(buffer.data(), buffer.data() + buffer.size(),
                              [](uint8_t byte) { return byte == kFilling; });
        }));
  }
  void free() { buffers_.clear(); }

 private:
  std::vector<Buffer> buffers_;
};

class ExposedMemory : public testing::TestWithParam<std::tuple<Doing, CallEnd, Becomes>> {
 protected:
  static Doing doing() { return std::get<0>(GetParam()); }
  static CallEnd call_end() { return std::get<1>(GetParam()); }
  static Becomes becomes() { return std::get<2>(GetParam()); }

  void SetUp() override {
    const bool fast = call_end() == CallEnd::kEngineFailed;
    us_ = std::make_unique<Member>(options_of(fast));
    const auto all_returned = [this, own = us_->use().allocations] {
      const ResourceUse use = us_->use();
      return use.queue_pairs == 0 && use.allocations == own;
    };
    // The first connection makes what stays for the life of the node.
    ASSERT_NO_FATAL_FAILURE(connect());
    end_peer();
    ASSERT_TRUE(us_->drive(all_returned, kReturn)) << us_->use();
    bare_ = us_->use();
    ASSERT_NO_FATAL_FAILURE(connect());
    idle_ = us_->use();
  }

  void connect() {
    peer_ = start_peer("holder", {call_end() == CallEnd::kEngineFailed ? "fast" : "slow"});
    const auto address = Address::parse(us_->line_of(*peer_, kPatience));
    ASSERT_TRUE(address.ok()) << peer_->errors();
    channel_ = rpc::Channel::create(us_->node(), *address, {});
    call(kEcho, text("warm"), kPatience);
    ASSERT_TRUE(us_->drive([this] { return answer_.has_value(); }, kPatience));
    ASSERT_TRUE(answer_->ok()) << answer_->status().to_string();
    answer_.reset();
    us_->drive_for(5ms);
  }

  void end_peer() {
    channel_.reset();
    peer_->signal(SIGKILL);
    peer_->wait().ignore();
    peer_.reset();
  }

  Buffer text(std::string_view words) {
    Buffer buffer = us_->pool().allocate_buffer(words.size()).value();
    std::memcpy(buffer.data(), words.data(), words.size());
    return buffer;
  }

  void call(const char* method, Buffer body, Nanoseconds timeout) {
    answer_.reset();
    call_id_ = channel_->call(rpc::method_id(method), {std::move(body), {}}, {timeout},
                              [this](Result<rpc::Payload> answer) { answer_ = std::move(answer); });
  }

  bool peer_is_stopped() const { return state_of(peer_->pid()) == ProcessState::kStopped; }

  // The call that the peer will be stopped in.
  void call_and_stop() {
    if (doing() == Doing::kReading) {
      call(kArm, text("softnic.fetch.middle"), kPatience);
      ASSERT_TRUE(us_->drive([this] { return answer_.has_value(); }, kPatience));
    }
    const Nanoseconds timeout = call_end() == CallEnd::kDeadline ? 300ms : kPatience;
    const Time end = us_->now() + kPatience;
    do {  // on a busy machine a deadline may come before the peer has got so far
      if (doing() == Doing::kReading) {
        call(kVerify, patterned(us_->pool(), kRequestBytes, kSeed), timeout);
      } else {
        call(kReply,
             text(doing() == Doing::kWriting ? "softnic.write.middle"
                                             : "softnic.take.header_copied"),
             timeout);
      }
      us_->drive([this] { return peer_is_stopped() || answer_.has_value(); }, kPatience);
    } while (!peer_is_stopped() && us_->now() < end);
    ASSERT_TRUE(peer_is_stopped());
  }

  void end_call() {
    if (call_end() == CallEnd::kCancelled) channel_->cancel(call_id_);
    ASSERT_TRUE(us_->drive([this] { return answer_.has_value(); }, kPatience));
    const Code expected = call_end() == CallEnd::kDeadline    ? Code::kDeadlineExceeded
                          : call_end() == CallEnd::kCancelled ? Code::kCancelled
                                                              : Code::kUnavailable;
    EXPECT_EQ(answer_->status().code(), expected) << answer_->status().to_string();
    // With its sockets gone too, only the peer can still want the memory.
    if (call_end() == CallEnd::kCancelled) channel_.reset();
    us_->drive_for(50ms);
  }

  size_t exposed_bytes() const { return doing() == Doing::kReading ? kRequestBytes : kReplyBytes; }

  std::unique_ptr<Member> us_;
  ResourceUse bare_;  // no peer
  ResourceUse idle_;  // connected
  std::unique_ptr<apps::ChildProcess> peer_;
  std::unique_ptr<rpc::Channel> channel_;
  std::optional<Result<rpc::Payload>> answer_;
  rpc::CallId call_id_ = 0;
};

TEST_P(ExposedMemory, IsNobodyElsesUntilThePeerHasConfirmedOrDied) {
  ASSERT_NO_FATAL_FAILURE(call_and_stop());
  ASSERT_NO_FATAL_FAILURE(end_call());
  // The call has ended, the memory has not come back, and the queue pair is still there.
  EXPECT_GE(us_->use().live_bytes, idle_.live_bytes + exposed_bytes());
  EXPECT_EQ(us_->use().queue_pairs, 1u);

  Reuse reuse(us_->pool());
  ASSERT_GT(reuse.count(), 100u);
  us_->drive_for(20ms);
  if (becomes() == Becomes::kGoesOn) {
    peer_->signal(SIGCONT);
    if (doing() == Doing::kReading) {
      EXPECT_EQ(us_->line_of(*peer_, kPatience), "intact");
    }
    us_->drive_for(100ms);
  } else {
    peer_->signal(SIGKILL);
    us_->drive([this] { return us_->use().queue_pairs == 0; }, kReturn);
  }
  EXPECT_EQ(reuse.changed(), 0u);
  reuse.free();

  if (becomes() == Becomes::kGoesOn) {
    const auto returned = [this] {
      const ResourceUse use = us_->use();
      const bool engine_lives = call_end() != CallEnd::kEngineFailed;
      return use.queue_pairs == (engine_lives ? 1 : 0) &&
             use.live_bytes <= (engine_lives ? idle_ : bare_).live_bytes;
    };
    EXPECT_TRUE(us_->drive(returned, kReturn)) << us_->use() << "\nidle: " << idle_;
  }
  end_peer();
  EXPECT_TRUE(us_->drive([this] { return us_->use() == bare_; }, kReturn))
      << us_->use() << "\nwithout a peer: " << bare_;
}

std::string name_of(const testing::TestParamInfo<ExposedMemory::ParamType>& test) {
  constexpr const char* kDoing[] = {"PeerIsWriting", "PeerIsReading", "PeerDoesNotAnswer"};
  constexpr const char* kEnd[] = {"CallTimesOut", "CallIsCancelled", "EngineFails"};
  constexpr const char* kBecomes[] = {"PeerGoesOn", "PeerIsKilled"};
  const auto [doing, end, becomes] = test.param;
  return std::string(kDoing[static_cast<int>(doing)]) + "_" + kEnd[static_cast<int>(end)] + "_" +
         kBecomes[static_cast<int>(becomes)];
}

INSTANTIATE_TEST_SUITE_P(All, ExposedMemory,
                         testing::Combine(testing::Values(Doing::kWriting, Doing::kReading,
                                                          Doing::kNotAnswering),
                                          testing::Values(CallEnd::kDeadline, CallEnd::kCancelled,
                                                          CallEnd::kEngineFailed),
                                          testing::Values(Becomes::kGoesOn, Becomes::kIsKilled)),
                         name_of);

}  // namespace
}  // namespace be::cluster
