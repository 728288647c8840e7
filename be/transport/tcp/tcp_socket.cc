#include "be/transport/tcp/tcp_socket.h"

#include <cassert>
#include <utility>

#include "be/base/log.h"

namespace be {

TcpSocket::TcpSocket(IoThreadImpl& thread, int fd, const Address& remote, const Limits& limits)
    : thread_(thread), fd_(fd), remote_(remote), limits_(limits) {}

TcpSocket::~TcpSocket() {
  if (close_timer_ != 0) thread_.timers().cancel(close_timer_);
  stop_patience_timer();
  if (fd_ < 0) return;
  thread_.poller().remove(fd_);
  thread_.world().network().close(fd_);
}

void TcpSocket::start(SocketHandler* handler, Status status) {
  assert(state_ == State::kCreated);
  handler_ = handler;
  state_ = close_asked_ ? State::kFlushing : State::kOpen;
  if (status.ok()) status = thread_.poller().add(fd_, this);
  if (!status.ok()) return fail(status);
  if (!out_.empty()) thread_.schedule(this);
}

void TcpSocket::close() {
  if (close_asked_ || state_ == State::kDead) return;
  close_asked_ = true;
  enqueue(FrameKind::kSocketClose, 0);
  watch_closing();
  if (state_ == State::kCreated) return;
  state_ = State::kFlushing;
  incoming_.reset();
  stop_patience_timer();
  if (!stalled_.empty()) {
    stalled_.clear();
    thread_.poller().set_readable(fd_, true).ignore();
  }
  thread_.schedule(this);
}

// A peer that takes nothing any more must not keep us for ever.
void TcpSocket::watch_closing() {
  close_timer_ = thread_.timers().schedule(saturating_add(thread_.now(), kCloseBound), [this] {
    close_timer_ = 0;
    if (bytes_written_ != written_before_) {
      written_before_ = bytes_written_;
      watch_closing();
    } else {
      end(error(Code::kClosed, "closed; {} did not confirm it in time", remote_.to_string()));
    }
  });
}

void TcpSocket::shut_down(const Status& why) {
  if (state_ == State::kDead) return;
  // Politeness without waiting: what the kernel takes now, the peer gets, and closing a
  // descriptor with unread input would reset the connection under it.
  if (state_ == State::kOpen) close();
  write_queued();
  if (state_ != State::kDead) drain_input();
  if (state_ != State::kDead) end(why);
}

void TcpSocket::on_ready(bool readable, bool writable) {
  if (writable) write_queued();
  if (!readable || state_ == State::kDead) return;
  if (stalled_.empty()) {
    read_input();
  } else {
    fail(Status(Code::kUnavailable, "connection lost while it waited for memory"));
  }
}

void TcpSocket::fail(const Status& why) {
  if (state_ == State::kDead) return;
  const Status named = why.with_context(fmt::format("tcp connection to {}", remote_.to_string()));
  if (why.code() == Code::kUnavailable) {
    log_info("{}", named.to_string());
  } else {
    log_warn("{}", named.to_string());
  }
  end(named);
}

void TcpSocket::end(const Status& why) {
  if (state_ == State::kDead) return;
  state_ = State::kDead;
  if (close_timer_ != 0) thread_.timers().cancel(close_timer_);
  stop_patience_timer();
  thread_.poller().remove(fd_);
  thread_.world().network().close(std::exchange(fd_, -1));
  incoming_.reset();
  while (!out_.empty()) {
    uint64_t cookie;
    {
      const Outgoing unsent = out_.pop_front();
      cookie = unsent.cookie;
    }
    if (cookie != 0) handler_->on_sent(*this, cookie, why);
  }
  handler_->on_closed(*this, why);
  thread_.dispose(this);
}

}  // namespace be
