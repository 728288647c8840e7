// A softnic event channel: one epoll over everything that an I/O thread may be woken by.
//
//   eventfd      peers that find a CQ's doorbell armed; ourselves, for events made elsewhere
//   listener     abstract socket of this channel; its name is in our endpoints
//   visitors     accepted, Hello not matched to a QP yet (bounded in number and time)
//   connections  one per QP: Accept and Reset
//   pidfds       one per peer process
//   timerfd      deadlines of connecting, RNR
//
// Owned by the user; used on one I/O thread. Nothing blocks. A visitor that misbehaves is
// dropped and logged; no QP is harmed.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "be/base/unique_fd.h"
#include "be/softnic/peer.h"
#include "be/softnic/rendezvous.h"
#include "be/verbs/device.h"

namespace be::softnic {

class SoftnicDevice;
struct CompletionQueue;
struct QueuePair;

// What a descriptor in the epoll belongs to.
struct Source {
  enum class Kind : uint8_t { kEvent, kListener, kTimer, kVisitor, kQueuePair, kPeer };
  Kind kind;
  void* object;
};

class Channel final : public EventChannel {
 public:
  using Clock = std::chrono::steady_clock;

  static Result<std::unique_ptr<Channel>> create(SoftnicDevice* device, uint64_t id);
  ~Channel() override;
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  int fd() const override { return epoll_.get(); }
  void take_events(std::vector<DeviceEvent>& out) override;

  uint64_t id() const { return id_; }
  const std::string& socket_name() const { return socket_name_; }
  int event_fd() const { return event_.get(); }
  void push(DeviceEvent event);  // returned by the next take_events, which fd() announces
  void wake_at(Clock::time_point when);

  void add(CompletionQueue* cq) { cqs_.push_back(cq); }
  void remove(CompletionQueue* cq);
  void add(QueuePair* qp) { qps_.push_back(qp); }

  Status connect(QueuePair& qp, const Endpoint& remote, bool initiator);
  void send_reset(QueuePair& qp);
  // The user has let go of the QP. True: it is gone. False: kQuiesced will come.
  bool retire(QueuePair& qp);

 private:
  struct Visitor {
    Source source{Source::Kind::kVisitor, this};
    UniqueFd socket;
    PeerProcess process;
    Clock::time_point deadline{};
    bool parked = false;  // its Hello is here, but its QP is not connecting yet
    Packet hello;
    PacketFds fds;
  };
  struct PeerWatch {
    Source source{Source::Kind::kPeer, this};
    std::shared_ptr<Peer> peer;
    uint32_t users = 0;
    bool gone = false;
  };

  Channel(SoftnicDevice* device, uint64_t id) : device_(device), id_(id) {}
  Status add_source(int fd, Source* source);
  void dispatch(Source& source);

  void accept_visitors();
  void on_visitor(Visitor* visitor);
  bool match(Visitor* visitor);  // true: it became a QP's connection, or was refused
  void drop(Visitor* visitor);
  void on_queue_pair(QueuePair& qp);
  void connection_closed(QueuePair& qp);
  void out_of_turn(QueuePair& qp, const char* what);
  void on_peer_exit(PeerWatch* watch);
  void on_timer();

  void start_connecting(QueuePair& qp);
  Status send_offer(QueuePair& qp, PacketKind kind, const uint8_t* token_half);
  Status attach(QueuePair& qp, const Packet& packet, PacketFds fds, PeerProcess process);
  void open(QueuePair& qp);
  void fail_connecting(QueuePair& qp, const Status& status);
  void peer_is_quiet(QueuePair& qp);
  void close_socket(QueuePair& qp);
  void watch(const std::shared_ptr<Peer>& peer);
  void unwatch(const Peer* peer);
  void release(QueuePair& qp);  // destroys it; its places are used again if the peer is quiet

  SoftnicDevice* const device_;
  const uint64_t id_;
  std::string socket_name_;
  UniqueFd epoll_;
  UniqueFd event_;
  UniqueFd listener_;
  UniqueFd timer_;
  Source event_source_{Source::Kind::kEvent, this};
  Source listener_source_{Source::Kind::kListener, this};
  Source timer_source_{Source::Kind::kTimer, this};
  Clock::time_point timer_at_ = Clock::time_point::max();
  std::vector<DeviceEvent> events_;
  std::vector<CompletionQueue*> cqs_;
  std::vector<QueuePair*> qps_;  // with the retired ones
  std::vector<std::unique_ptr<Visitor>> visitors_;
  std::vector<std::unique_ptr<PeerWatch>> watches_;
};

}  // namespace be::softnic
