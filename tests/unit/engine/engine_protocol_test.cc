// A peer that breaks the protocol: its engine ends with kProtocol naming the field, no more.
#include <arpa/inet.h>

#include "be/engine/frame.h"
#include "tests/unit/engine/engine_pair.h"

namespace be {
namespace {

// A queue pair that says what it likes to the engine at its other end.
class HostilePeer : public Station {
 public:
  HostilePeer() : Station(size_t{16} << 20) {
    QueuePairOptions options;
    options.send_cq = options.recv_cq = cq;
    options.send_depth = 32;
    options.recv_depth = 64;
    options.max_inline_bytes = 64;
    qp = device->create_qp(options).value().qp;
    memory = pool->allocate_buffer(size_t{256} << 10).value();
    keys = *pool->region(memory.data(), 0);
    for (size_t i = 0; i < 64; ++i) {
      ibv_sge sge = {reinterpret_cast<uintptr_t>(receive(i)), kReceive, keys.lkey};
      ibv_recv_wr wr = {i, nullptr, &sge, 1};
      ibv_recv_wr* bad = nullptr;
      EXPECT_EQ(ibv_post_recv(qp, &wr, &bad), 0);
    }
  }
  ~HostilePeer() {
    EXPECT_TRUE(device->retire_qp(qp).ok());
    memory.reset();
  }

  EngineTerms terms() {
    EngineTerms terms;
    terms.recv_queue_depth = terms.initial_credits = 16;
    terms.grants = 8;
    terms.write_requests = 8;
    terms.grant_cancels = 4;
    terms.eager_bytes = kReceive;
    terms.max_message_bytes = 1u << 20;
    terms.keepalive_address = reinterpret_cast<uintptr_t>(memory.data());
    terms.keepalive_rkey = keys.rkey;
    terms.keepalive_interval = 1s;
    return terms;
  }

  void send_bytes(const void* bytes, uint32_t length) {
    std::memcpy(out(), bytes, length);
    ibv_sge sge = {reinterpret_cast<uintptr_t>(out()), length, keys.lkey};
    ibv_send_wr wr{};
    wr.opcode = IBV_WR_SEND;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    post(wr);
  }
  void send(const FrameHeader& header, const std::string& rest = "") {
    std::string bytes(FrameHeader::kBytes, '\0');
    encode(header, reinterpret_cast<uint8_t*>(bytes.data()));
    bytes += rest;
    send_bytes(bytes.data(), static_cast<uint32_t>(bytes.size()));
  }
  void write_immediate(const GrantedMemory& to, const std::string& bytes, uint32_t immediate) {
    std::memcpy(out(), bytes.data(), bytes.size());
    ibv_sge sge = {reinterpret_cast<uintptr_t>(out()), static_cast<uint32_t>(bytes.size()),
                   keys.lkey};
    ibv_send_wr wr{};
    wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.imm_data = htonl(immediate);
    wr.wr.rdma.remote_addr = to.address;
    wr.wr.rdma.rkey = to.rkey;
    post(wr);
  }
  void post(ibv_send_wr& wr) {
    ibv_send_wr* bad = nullptr;
    EXPECT_EQ(ibv_post_send(qp, &wr, &bad), 0);
  }

  // Takes what has come; true and the last frame if there was one.
  bool take(FrameHeader& header, std::string& rest) {
    bool any = false;
    ibv_wc completions[16];
    for (int n; (n = ibv_poll_cq(cq, 16, completions)) > 0;) {
      for (int i = 0; i < n; ++i) {
        if (completions[i].status != IBV_WC_SUCCESS) continue;
        if (completions[i].opcode != IBV_WC_RECV) continue;
        const uint8_t* bytes = receive(completions[i].wr_id);
        EXPECT_EQ(decode(bytes, completions[i].byte_len, header), nullptr);
        rest.assign(reinterpret_cast<const char*>(bytes) + FrameHeader::kBytes,
                    completions[i].byte_len - FrameHeader::kBytes);
        any = true;
      }
    }
    return any;
  }

  ibv_qp* qp = nullptr;
  Buffer memory;
  RegionKeys keys;
  bool connected = false;

 private:
  static constexpr uint32_t kReceive = 1024;
  uint8_t* receive(size_t i) { return memory.data() + 1024 * (1 + i); }
  uint8_t* out() { return memory.data() + (size_t{128} << 10); }
};

class EngineProtocol : public testing::Test {
 protected:
  EngineProtocol() : victim_(options()) {
    victim_.help = [this] { pump_peer(); };
    EXPECT_TRUE(
        victim_.engine
            ->connect(peer_.terms(), peer_.device->local_endpoint(peer_.qp).value(), kToken, true)
            .ok());
    EXPECT_TRUE(peer_.device
                    ->connect_qp(peer_.qp, victim_.engine->local_endpoint().value(), kToken, false,
                                 ConnectOptions{})
                    .ok());
    for (int i = 0; i < 100000; ++i) {
      pump();
      if (peer_.connected && victim_.engine->state() == Engine::State::kReady) break;
    }
    EXPECT_EQ(victim_.engine->state(), Engine::State::kReady);
  }
  static EngineOptions options() {
    EngineOptions options;
    options.recv_queue_depth = 4;
    options.write_requests = 2;
    return options;
  }
  void pump_peer() {
    std::vector<DeviceEvent> events;
    peer_.channel->take_events(events);
    for (const auto& event : events) {
      if (event.kind == DeviceEvent::Kind::kConnected) peer_.connected = event.status.ok();
    }
    ibv_wc completion;
    if (!keep_frames_) {
      while (ibv_poll_cq(peer_.cq, 1, &completion) > 0) {
      }
    }
  }
  void pump() {
    victim_.pump();
    pump_peer();
  }
  // The victim's engine ends, and says that `field` was wrong.
  void expect_broken(const std::string& field) {
    for (int i = 0; i < 1000 && victim_.failures == 0; ++i) pump();
    ASSERT_EQ(victim_.failures, 1);
    EXPECT_EQ(victim_.failure.code(), Code::kProtocol) << victim_.failure.to_string();
    EXPECT_NE(victim_.failure.message().find("peer"), std::string::npos);
    EXPECT_NE(victim_.failure.message().find(field), std::string::npos)
        << victim_.failure.to_string();
  }
  void expect_alive() {
    for (int i = 0; i < 50; ++i) pump();
    EXPECT_EQ(victim_.failures, 0) << victim_.failure.to_string();
  }
  static FrameHeader header(FrameType type, uint32_t value = 0) {
    FrameHeader header;
    header.type = type;
    header.value = value;
    return header;
  }
  static FrameHeader write_request(uint32_t length, uint32_t tag = 0) {
    FrameHeader h = header(FrameType::kWriteRequest, tag);
    h.socket = 9;
    h.length = length;
    return h;
  }
  // A grant for `length` bytes of message on socket 9.
  GrantedMemory get_grant(uint32_t length) {
    keep_frames_ = true;
    peer_.send(write_request(length));
    FrameHeader answer;
    std::string rest;
    for (int i = 0; i < 1000; ++i) {
      pump();
      if (!peer_.take(answer, rest)) continue;
      EXPECT_EQ(answer.type, FrameType::kWriteResponse);
      EXPECT_EQ(answer.refusal, Code::kOk);
      keep_frames_ = false;
      return decode_granted_memory(reinterpret_cast<const uint8_t*>(rest.data()));
    }
    ADD_FAILURE() << "no grant";
    return {};
  }
  static std::string message_at_grant(uint32_t length, SocketId socket = 9) {
    FrameHeader h = header(FrameType::kMessage);
    h.socket = socket;
    h.length = length;
    std::string bytes(FrameHeader::kBytes + length, 'm');
    encode(h, reinterpret_cast<uint8_t*>(bytes.data()));
    return bytes;
  }

  HostilePeer peer_;
  EngineEnd victim_;
  bool keep_frames_ = false;
};

TEST_F(EngineProtocol, AGoodPeerIsUnderstood) {
  FrameHeader h = header(FrameType::kMessage);
  h.socket = 9;
  h.length = 5;
  peer_.send(h, "hello");
  expect_alive();
  ASSERT_EQ(victim_.frames.size(), 1u);
  const GrantedMemory grant = get_grant(1000);
  peer_.write_immediate(grant, message_at_grant(1000), grant.grant);
  expect_alive();
  ASSERT_EQ(victim_.frames.size(), 2u);
  EXPECT_EQ(text_of(victim_.frames[1].payload), std::string(1000, 'm'));
}

TEST_F(EngineProtocol, GarbageEndsTheEngine) {
  peer_.send_bytes("what is this supposed to be?", 28);
  expect_broken("frame");
}

TEST_F(EngineProtocol, ATruncatedHeaderEndsTheEngine) {
  peer_.send_bytes("\1\0\0", 3);
  expect_broken("frame length");
}

TEST_F(EngineProtocol, ALengthThatIsNotThatOfTheFrameEndsTheEngine) {
  FrameHeader h = header(FrameType::kMessage);
  h.length = 100000;
  peer_.send(h, "short");
  expect_broken("length");
}

TEST_F(EngineProtocol, SendingWithoutCreditEndsTheEngine) {
  // The victim consumes, but does not return credits.
  for (int i = 0; i < 5; ++i) peer_.send(header(FrameType::kMessage));
  for (int i = 0; i < 100 && victim_.failures == 0; ++i) {
    victim_.poll();
    pump_peer();
  }
  expect_broken("credit");
  EXPECT_EQ(victim_.frames.size(), 4u);
}

TEST_F(EngineProtocol, AnImpossibleCreditTotalEndsTheEngine) {
  peer_.send(header(FrameType::kCredits, 1u << 30));
  expect_broken("Credits: total");
}

TEST_F(EngineProtocol, AnUnknownGrantInTheImmediateEndsTheEngine) {
  const GrantedMemory grant = get_grant(1000);
  peer_.write_immediate(grant, message_at_grant(1000), grant.grant + 1);
  expect_broken("grant");
  EXPECT_TRUE(victim_.frames.empty());
}

TEST_F(EngineProtocol, AStaleGrantEndsTheEngine) {
  const GrantedMemory grant = get_grant(1000);
  peer_.write_immediate(grant, message_at_grant(1000), grant.grant);
  expect_alive();
  peer_.send(header(FrameType::kGrantDone, grant.grant));
  expect_broken("GrantDone: grant");
  EXPECT_EQ(victim_.frames.size(), 1u);
}

TEST_F(EngineProtocol, AWrittenMessageMustBeTheOneThatWasAskedFor) {
  const GrantedMemory grant = get_grant(1000);
  peer_.write_immediate(grant, message_at_grant(999), grant.grant);
  expect_broken("written message: length");
}

TEST_F(EngineProtocol, AWrittenMessageForAnotherSocketEndsTheEngine) {
  const GrantedMemory grant = get_grant(1000);
  peer_.write_immediate(grant, message_at_grant(1000, 11), grant.grant);
  expect_broken("written message: socket");
}

TEST_F(EngineProtocol, AControlFrameAtAGrantEndsTheEngine) {
  const GrantedMemory grant = get_grant(16);
  std::string bytes(32, '\0');
  encode(header(FrameType::kWriteResponse), reinterpret_cast<uint8_t*>(bytes.data()));
  peer_.write_immediate(grant, bytes, grant.grant);
  expect_broken("written message: frame type");
}

TEST_F(EngineProtocol, AWriteRequestBeyondOurLimitEndsTheEngine) {
  peer_.send(write_request((1u << 30) + 1));
  expect_broken("WriteRequest: length");
}

TEST_F(EngineProtocol, MoreUnansweredWriteRequestsThanAgreedEndTheEngine) {
  for (uint32_t tag = 0; tag < 3; ++tag) peer_.send(write_request(1000, tag));
  for (int i = 0; i < 100 && victim_.failures == 0; ++i) {
    victim_.poll();  // taken, not answered
    pump_peer();
  }
  expect_broken("WriteRequest: count");
}

TEST_F(EngineProtocol, AnAnswerToNothingEndsTheEngine) {
  peer_.send(header(FrameType::kWriteResponse, 3), std::string(16, '\0'));
  expect_broken("WriteResponse: tag");
}

TEST_F(EngineProtocol, CancelsThatWereNeverSentCannotBeTaken) {
  FrameHeader h = header(FrameType::kMessage);
  h.cancels_taken = 1;
  peer_.send(h);
  expect_broken("cancels taken");
}

TEST_F(EngineProtocol, ACancelOfAGrantThatItsWriterHasClosedIsIgnored) {
  peer_.send(header(FrameType::kGrantCancel, 0x1234));
  expect_alive();
}

}  // namespace
}  // namespace be
