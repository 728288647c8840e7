// softnic between processes whose peers die, stop and go on. The child is this test itself,
// forked before any device is open; both talk over a socket pair beside softnic.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstring>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "be/softnic/softnic_device.h"

namespace be {
namespace {

using Clock = std::chrono::steady_clock;
constexpr size_t kMemoryBytes = size_t{4} << 20;
constexpr uint32_t kDepth = 32;
constexpr uint8_t kToken[16] = {7};

// One process' end; every failure ends the process, so that a child cannot report success.
class End {
 public:
  explicit End(int side) : side_(side) {
    fd_ = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    check(ftruncate(fd_, kMemoryBytes) == 0 && fcntl(fd_, F_ADD_SEALS, F_SEAL_SHRINK) == 0);
    memory = static_cast<uint8_t*>(
        mmap(nullptr, kMemoryBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0));
    device = std::move(open_softnic({})).value();
    channel = std::move(device->create_event_channel()).value();
    cq = device->create_cq(1024, channel.get(), nullptr, nullptr).value();
    mr = device
             ->register_memory(memory, kMemoryBytes,
                               IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE, {.fd = fd_})
             .value();
  }

  ~End() {
    while (!qps_.empty()) retire(qps_.back());
    check(device->destroy_cq(cq).ok() && device->deregister(mr).ok());
    channel.reset();
    device.reset();
    munmap(memory, kMemoryBytes);
    ::close(fd_);
  }
  End(const End&) = delete;
  End& operator=(const End&) = delete;

  QuiesceToken retire(ibv_qp* qp) {
    std::erase(qps_, qp);
    return device->retire_qp(qp).value();
  }

  ibv_qp* add_qp() {
    QueuePairOptions options;
    options.send_cq = options.recv_cq = cq;
    options.send_depth = options.recv_depth = kDepth;
    ibv_qp* qp = device->create_qp(options).value().qp;
    qps_.push_back(qp);
    for (uint32_t i = 0; i < kDepth; ++i) post_recv(qp);
    return qp;
  }

  // The other process calls it at the same time.
  void connect(ibv_qp* qp, bool initiator) {
    struct Hello {
      uint64_t length;
      uint8_t blob[kMaxEndpointBytes];
      uint64_t address;
      uint64_t rkey;
    } mine{}, theirs{};
    const EndpointBlob blob = device->local_endpoint(qp).value();
    mine.length = blob.size();
    std::memcpy(mine.blob, blob.data(), blob.size());
    mine.address = reinterpret_cast<uint64_t>(memory);
    mine.rkey = mr->rkey;
    check(send(side_, &mine, sizeof(mine), 0) == sizeof(mine));
    check(recv(side_, &theirs, sizeof(theirs), MSG_WAITALL) == sizeof(theirs));
    remote_address = theirs.address;
    rkey = static_cast<uint32_t>(theirs.rkey);
    const EndpointBlob remote(theirs.blob, theirs.blob + theirs.length);
    check(device->connect_qp(qp, remote, kToken, initiator, {}).ok());
    const DeviceEvent event = wait_event(5000);
    check(event.kind == DeviceEvent::Kind::kConnected && event.status.ok());
  }

  void post_recv(ibv_qp* qp) {
    ibv_sge sge{.addr = reinterpret_cast<uint64_t>(memory), .length = 4096, .lkey = mr->lkey};
    ibv_recv_wr request{};
    request.sg_list = &sge;
    request.num_sge = 1;
    ibv_recv_wr* bad = nullptr;
    check(ibv_post_recv(qp, &request, &bad) == 0);
  }

  int post(ibv_qp* qp, ibv_wr_opcode opcode, uint32_t bytes) {
    ibv_sge sge{.addr = reinterpret_cast<uint64_t>(memory), .length = bytes, .lkey = mr->lkey};
    ibv_send_wr request{};
    request.opcode = opcode;
    request.sg_list = &sge;
    request.num_sge = 1;
    request.send_flags = IBV_SEND_SIGNALED;
    request.wr.rdma.remote_addr = remote_address;
    request.wr.rdma.rkey = rkey;
    ibv_send_wr* bad = nullptr;
    return ibv_post_send(qp, &request, &bad);
  }

  // Polls until `done` says so of a completion; false after `timeout_ms`.
  bool poll_until(const std::function<bool(const ibv_wc&)>& done, int timeout_ms) {
    const auto end = Clock::now() + std::chrono::milliseconds(timeout_ms);
    while (Clock::now() < end) {
      ibv_wc wc;
      if (ibv_poll_cq(cq, 1, &wc) == 1 && done(wc)) return true;
    }
    return false;
  }

  // Sleeps for the next event; a completion event with `kDeviceRemoved` kind means none came.
  DeviceEvent wait_event(int timeout_ms) {
    if (events_.empty()) {
      pollfd entry{.fd = channel->fd(), .events = POLLIN, .revents = 0};
      const auto end = Clock::now() + std::chrono::milliseconds(timeout_ms);
      while (events_.empty() && Clock::now() < end) {
        const auto left =
            std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now()).count();
        ::poll(&entry, 1, static_cast<int>(left) + 1);
        channel->take_events(events_);
      }
    }
    if (events_.empty()) {
      DeviceEvent none;
      none.kind = DeviceEvent::Kind::kDeviceRemoved;
      return none;
    }
    DeviceEvent event = events_.front();
    events_.erase(events_.begin());
    return event;
  }

  void say() const { check(send(side_, "x", 1, 0) == 1); }
  void hear() const {
    char byte = 0;
    check(recv(side_, &byte, 1, 0) == 1);
  }
  static void check(bool good) {
    if (!good) _exit(1);
  }

  uint8_t* memory = nullptr;
  std::unique_ptr<Device> device;
  std::unique_ptr<EventChannel> channel;
  ibv_cq* cq = nullptr;
  ibv_mr* mr = nullptr;
  uint64_t remote_address = 0;
  uint32_t rkey = 0;

 private:
  const int side_;
  int fd_ = -1;
  std::vector<ibv_qp*> qps_;
  std::vector<DeviceEvent> events_;
};

class Child {
 public:
  explicit Child(const std::function<void(End&)>& body) {
    int sockets[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets), 0);
    side = sockets[0];
    pid = fork();
    if (pid == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      ::close(sockets[0]);
      {
        End end(sockets[1]);
        body(end);
      }
      _exit(0);
    }
    ::close(sockets[1]);
  }
  ~Child() {
    if (pid > 0) {
      kill(pid, SIGKILL);
      waitpid(pid, nullptr, 0);
    }
    ::close(side);
  }
  void reap() { waitpid(std::exchange(pid, 0), nullptr, 0); }

  int side = -1;
  pid_t pid = 0;
};

bool is_fatal(const DeviceEvent& event) { return event.kind == DeviceEvent::Kind::kQpFatal; }

// Echoes every message until it is killed.
void echo(End& end) {
  ibv_qp* qp = end.add_qp();
  end.connect(qp, false);
  for (;;) {
    end.poll_until(
        [&](const ibv_wc& wc) {
          if (wc.status == IBV_WC_SUCCESS && (wc.opcode & IBV_WC_RECV)) {
            end.post_recv(qp);
            end.post(qp, IBV_WR_SEND, 32);
          }
          return false;
        },
        1000);
  }
}

bool round_trip(End& end, ibv_qp* qp) {
  if (end.post(qp, IBV_WR_SEND, 32) != 0) return false;
  const bool replied = end.poll_until(
      [](const ibv_wc& wc) { return wc.status == IBV_WC_SUCCESS && (wc.opcode & IBV_WC_RECV); },
      5000);
  end.post_recv(qp);
  return replied;
}

TEST(SoftnicPeers, TheDeathOfOneIsToldToItsQueuePairsOnlyAndWithinAMoment) {
  Child victim(echo);
  Child other(echo);
  End us(victim.side);
  ibv_qp* doomed = us.add_qp();
  us.connect(doomed, true);
  End us_too(other.side);
  ibv_qp* healthy = us_too.add_qp();
  us_too.connect(healthy, true);
  ASSERT_TRUE(round_trip(us, doomed));
  ASSERT_TRUE(round_trip(us_too, healthy));

  kill(victim.pid, SIGKILL);
  const auto start = Clock::now();
  const DeviceEvent event = us.wait_event(5000);
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(1));
  ASSERT_TRUE(is_fatal(event));
  EXPECT_EQ(event.qp, doomed);
  EXPECT_EQ(event.status.code(), Code::kUnavailable);
  EXPECT_EQ(us.device->qp_state(doomed), IBV_QPS_ERR);
  size_t flushed = 0;
  us.poll_until(
      [&](const ibv_wc& wc) {
        flushed += wc.status == IBV_WC_WR_FLUSH_ERR;
        return flushed == kDepth;
      },
      1000);
  EXPECT_EQ(flushed, kDepth);
  victim.reap();
  us.wait_event(100);  // its exit, if only the end of its connection was noticed before
  EXPECT_EQ(us.retire(doomed), kQuiescedNow);
  EXPECT_TRUE(round_trip(us_too, healthy));
}

TEST(SoftnicPeers, KilledAtAnyMomentNoSurvivorHangs) {
  for (int round = 0; round < 20; ++round) {
    Child victim(echo);
    End us(victim.side);
    ibv_qp* qp = us.add_qp();
    us.connect(qp, true);
    const auto kill_at = Clock::now() + std::chrono::microseconds(37 * round);
    bool killed = false;
    bool fatal = false;
    const auto end = Clock::now() + std::chrono::seconds(5);
    std::vector<DeviceEvent> events;
    ibv_wc wc;
    while (!fatal && Clock::now() < end) {
      us.post(qp, IBV_WR_SEND, 32);
      us.post(qp, IBV_WR_RDMA_WRITE, 8192);
      while (ibv_poll_cq(us.cq, 1, &wc) == 1) {
        if (wc.status == IBV_WC_SUCCESS && (wc.opcode & IBV_WC_RECV)) us.post_recv(qp);
      }
      if (!killed && Clock::now() >= kill_at) {
        kill(victim.pid, SIGKILL);
        killed = true;
      }
      events.clear();
      us.channel->take_events(events);
      for (const DeviceEvent& event : events) fatal |= is_fatal(event);
    }
    ASSERT_TRUE(fatal) << round;
  }
}

TEST(SoftnicPeers, AStoppedPeerKeepsOurBuffersInQuarantineUntilItGoesOn) {
  Child peer([](End& end) {
    ibv_qp* qp = end.add_qp();
    end.connect(qp, false);
    for (;;) end.wait_event(1000);
  });
  End us(peer.side);
  ibv_qp* qp = us.add_qp();
  us.connect(qp, true);
  kill(peer.pid, SIGSTOP);
  int status = 0;
  ASSERT_EQ(waitpid(peer.pid, &status, WUNTRACED), peer.pid);
  const QuiesceToken token = us.retire(qp);
  ASSERT_NE(token, kQuiescedNow);
  EXPECT_EQ(us.wait_event(200).kind, DeviceEvent::Kind::kDeviceRemoved);  // nothing
  kill(peer.pid, SIGCONT);
  const DeviceEvent event = us.wait_event(5000);
  EXPECT_EQ(event.kind, DeviceEvent::Kind::kQuiesced);
  EXPECT_EQ(event.token, token);
}

TEST(SoftnicPeers, AStoppedPeerThatIsKilledReleasesTheQuarantine) {
  Child peer(echo);
  End us(peer.side);
  ibv_qp* qp = us.add_qp();
  us.connect(qp, true);
  ASSERT_TRUE(round_trip(us, qp));
  kill(peer.pid, SIGSTOP);
  int status = 0;
  ASSERT_EQ(waitpid(peer.pid, &status, WUNTRACED), peer.pid);
  const QuiesceToken token = us.retire(qp);
  ASSERT_NE(token, kQuiescedNow);
  kill(peer.pid, SIGKILL);
  const DeviceEvent event = us.wait_event(5000);
  EXPECT_EQ(event.kind, DeviceEvent::Kind::kQuiesced);
  EXPECT_EQ(event.token, token);
}

TEST(SoftnicPeers, DeathIsNoticedThoughAForkedChildHoldsTheConnections) {
  Child peer([](End& end) {
    ibv_qp* qp = end.add_qp();
    end.connect(qp, false);
    if (fork() == 0) {
      prctl(PR_SET_PDEATHSIG, 0);
      sleep(3);
      _exit(0);
    }
    end.say();
    for (;;) end.wait_event(1000);
  });
  End us(peer.side);
  ibv_qp* qp = us.add_qp();
  us.connect(qp, true);
  us.hear();
  kill(peer.pid, SIGKILL);
  const auto start = Clock::now();
  EXPECT_TRUE(is_fatal(us.wait_event(5000)));
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(1));
  EXPECT_EQ(us.retire(qp), kQuiescedNow);
}

TEST(SoftnicPeers, APeerThatNeverAnswersCostsABoundedTime) {
  // Connects to a channel of ours that nobody serves: as good as a stopped process.
  End us(-1);
  End deaf(-1);
  ibv_qp* qp = us.add_qp();
  ibv_qp* theirs = deaf.add_qp();
  const auto start = Clock::now();
  ASSERT_TRUE(
      us.device->connect_qp(qp, deaf.device->local_endpoint(theirs).value(), kToken, true, {})
          .ok());
  const DeviceEvent event = us.wait_event(10000);
  EXPECT_EQ(event.kind, DeviceEvent::Kind::kConnected);
  EXPECT_EQ(event.status.code(), Code::kDeadlineExceeded);
  const auto waited = Clock::now() - start;
  EXPECT_GT(waited, std::chrono::seconds(4));
  EXPECT_LT(waited, std::chrono::seconds(9));
}

TEST(SoftnicPeers, ManyConnectionsComeAndGoWithoutLeavingAnything) {
  constexpr int kRounds = 100;
  Child peer([](End& end) {
    for (int i = 0; i < kRounds; ++i) {
      ibv_qp* qp = end.add_qp();
      end.connect(qp, false);
      End::check(end.poll_until([](const ibv_wc& wc) { return wc.opcode & IBV_WC_RECV; }, 5000));
      ibv_wc wc;
      End::check(ibv_poll_cq(end.cq, 1, &wc) == 0);  // tells the client that it has arrived
      End::check(is_fatal(end.wait_event(5000)));    // the client has retired it
      End::check(end.retire(qp) == kQuiescedNow);
    }
    end.say();
  });
  End us(peer.side);
  for (int i = 0; i < kRounds; ++i) {
    ibv_qp* qp = us.add_qp();
    us.connect(qp, true);
    ASSERT_EQ(us.post(qp, IBV_WR_SEND, 32), 0);
    ASSERT_TRUE(us.poll_until([](const ibv_wc&) { return true; }, 5000));
    const QuiesceToken token = us.retire(qp);
    if (token != kQuiescedNow) {
      const DeviceEvent event = us.wait_event(5000);
      ASSERT_EQ(event.kind, DeviceEvent::Kind::kQuiesced);
      ASSERT_EQ(event.token, token);
    }
  }
  us.hear();
}

}  // namespace
}  // namespace be
