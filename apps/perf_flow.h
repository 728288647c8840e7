// PerfFlow: one socket of `byteexpress perf client` that keeps a number of messages on their way.
//
//   connect() --Welcome--> ready --start()--> sending: `outstanding` messages without a reply,
//   each reply is the next message's turn --stop()--> no new ones --last reply--> idle
//
// The time of a message runs from before its payload is made to its reply; with one outstanding by
// the exact clock, with more by that of the I/O thread's iteration, which costs nothing.
//
// Used on the thread that drives the node. A failure (refused, closed, a reply of wrong size) is
// kept in failure() and ends the flow.
#pragma once

#include <cstdint>
#include <vector>

#include "apps/perf_protocol.h"
#include "be/base/histogram.h"
#include "be/transport/node.h"

namespace be::apps {

class PerfFlow final : public SocketHandler {
 public:
  static constexpr uint32_t kMaxOutstanding = 1024;

  // What was done since start().
  struct Done {
    uint64_t sent = 0;
    uint64_t answered = 0;
    Histogram times_ns;
    Time last_reply{};
  };

  // `failed` is set by any failure: one flag that many flows share.
  PerfFlow(Node& node, const PerfGreeting& greeting, bool& failed)
      : node_(node), greeting_(greeting), failed_(failed) {}
  virtual ~PerfFlow() = default;
  PerfFlow(const PerfFlow&) = delete;
  PerfFlow& operator=(const PerfFlow&) = delete;

  void connect(const Address& server, Nanoseconds timeout);
  bool ready() const { return ready_; }
  const Status& failure() const { return failure_; }

  void start(uint32_t message_bytes, uint32_t outstanding);  // requires ready() and idle()
  void stop() { sending_ = false; }
  bool idle() const { return done_.sent == done_.answered || !failure_.ok(); }
  const Done& done() const { return done_; }

  void on_open(Socket& socket) override;
  void on_message(Socket& socket, Buffer message) override;
  void on_sent(Socket&, uint64_t, const Status&) override {}
  void on_closed(Socket& socket, const Status& status) override;

 private:
  void send_one(Time begin);
  Status try_send();
  void take_reply(const Buffer& reply);
  void fail(const Status& why);
  Time clock() const { return outstanding_ == 1 ? node_.world().now() : socket_->thread().now(); }

  Node& node_;
  const PerfGreeting greeting_;
  bool& failed_;
  Socket* socket_ = nullptr;
  bool ready_ = false;
  bool sending_ = false;
  Status failure_;

  uint32_t message_bytes_ = 0;
  uint32_t outstanding_ = 0;
  Buffer content_;           // not touched: all messages are this one
  std::vector<Time> begun_;  // of message n at n % outstanding
  uint8_t written_ = 0;
  uint64_t sum_ = 0;
  Done done_;
};

}  // namespace be::apps
