// TcpSocket: a Socket over one kernel connection of its own, the fallback and the baseline.
//
//   frame on the wire:  length (4, little-endian) | kind (1) | zero (3) | payload (length bytes)
//
// Sending: send() queues; at the end of the iteration what is queued goes out in gathering
// writes: small pieces are copied together, large parts go as they are. on_sent follows when
// the kernel has taken the message.
//
// Receiving: one read takes the rest of the message in hand, straight into its Buffer, and
// what follows, into the thread's scratch space; from there whole small messages are copied
// into Buffers of their size. At the memory cap the connection is not read until memory is free;
// but not for ever: two ends whose memory is full of what they want to send each other would not.
//
//   kOpen --close()--> kFlushing --all written, end of stream sent--> kLingering --peer's end,
//   error or the bound--> kDead              any --failure, peer's close--> kDead
//
// A malformed, truncated or oversized frame ends the connection with a logged, named error.
#pragma once

#include <cstdint>
#include <vector>

#include "be/base/ring_queue.h"
#include "be/engine/engine.h"
#include "be/transport/io_thread_impl.h"
#include "be/transport/socket.h"
#include "be/transport/tcp/tcp_frame.h"

namespace be {

class TcpSocket final : public Socket, public Resident, private PollHandler {
 public:
  struct Limits {
    uint32_t max_send_bytes = 0;     // what the peer takes
    uint32_t max_receive_bytes = 0;  // what we take
    Nanoseconds memory_patience{};   // a message that waits longer for memory ends the connection
  };

  // Takes a connected descriptor that is in no Poller. Nothing is sent or received before
  // start(); what is sent until then waits for it.
  TcpSocket(IoThreadImpl& thread, int fd, const Address& remote, const Limits& limits);
  ~TcpSocket() override;

  // Once adopted by the thread. With a failure (set-up broke after the socket was accepted) it
  // only ends: the handler gets its on_closed in any case.
  void start(SocketHandler* handler, Status status);
  void abandon() { fd_ = -1; }  // never started: the descriptor stays with the caller

  bool open() const { return state_ == State::kOpen; }

  Status send(Message& message, uint64_t cookie) override;
  void close() override;
  TransportKind transport() const override { return TransportKind::kTcp; }
  const Address& remote() const override { return remote_; }
  IoThread& thread() const override { return thread_; }
  size_t max_message_bytes() const override { return limits_.max_send_bytes; }

  void shut_down(const Status& why) override;
  bool progress() override { return write_queued(); }
  bool poll_input() override { return read_input(); }
  void on_memory() override;

 private:
  enum class State : uint8_t { kCreated, kOpen, kFlushing, kLingering, kDead };

  struct Outgoing {
    Message message;
    uint64_t cookie = 0;
    uint32_t bytes = 0;
    FrameKind kind = FrameKind::kMessage;
    uint8_t head[TcpFrame::kBytes];  // encoded: length and kind
  };

  static constexpr size_t kMaxQueued = 4096;       // messages; more are refused
  static constexpr size_t kLargeBytes = 16 << 10;  // above: not read ahead of
  static constexpr size_t kReadAheadAfterLarge = 4 << 10;
  static constexpr int kReadsPerTurn = 16;
  static constexpr Nanoseconds kCloseBound = 5s;  // without progress

  void on_ready(bool readable, bool writable) override;

  // tcp_socket_send.cc
  Outgoing& enqueue(FrameKind kind, uint32_t bytes);
  bool write_queued();
  int gather(iovec* iov);
  void written(size_t bytes);
  void arm_writable(bool on);

  // tcp_socket_receive.cc
  bool read_input();
  bool drain_input();
  bool reading() const { return state_ == State::kOpen && stalled_.empty(); }
  void parse(uint8_t* data, size_t size);
  void deliver(Buffer message);
  void stall(const uint8_t* data, size_t size);
  void stop_patience_timer();
  void end_of_stream();

  void watch_closing();
  void fail(const Status& why);
  void end(const Status& why);

  IoThreadImpl& thread_;
  int fd_;
  const Address remote_;
  const Limits limits_;
  SocketHandler* handler_ = nullptr;
  State state_ = State::kCreated;
  bool close_asked_ = false;
  bool peer_ended_ = false;  // its end of stream was read

  RingQueue<Outgoing> out_;
  size_t front_written_ = 0;  // bytes of out_.front()'s frame that the kernel has
  bool writable_armed_ = false;

  uint8_t head_[TcpFrame::kBytes] = {};  // of a frame of which only this much has come
  size_t head_size_ = 0;
  Buffer incoming_;  // message in hand: filled_ of its bytes have come
  size_t filled_ = 0;
  size_t read_ahead_ = IoThreadImpl::kScratchBytes;
  std::vector<uint8_t> stalled_;  // read, but there was no memory for its message
  TimerId patience_timer_ = 0;    // while one message waits for memory

  TimerId close_timer_ = 0;
  uint64_t bytes_written_ = 0;  // tells a slow close from a dead one
  uint64_t written_before_ = 0;
};

}  // namespace be
