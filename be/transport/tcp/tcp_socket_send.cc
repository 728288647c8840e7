// The sending half of TcpSocket.
#include <cstring>
#include <utility>

#include "be/transport/tcp/tcp_socket.h"

namespace be {
namespace {

constexpr int kMaxIov = 64;
// Up to here one copy is cheaper than one more entry of a gathering write.
constexpr size_t kCopyBytes = 512;

// Builds a gathering write that begins `skip` bytes into what is added.
class Gatherer {
 public:
  Gatherer(iovec* iov, uint8_t* staging, size_t skip) : iov_(iov), staging_(staging), skip_(skip) {}

  // False: full, and this piece was not added.
  bool add(const uint8_t* bytes, size_t size) {
    if (skip_ >= size) {
      skip_ -= size;
      return true;
    }
    bytes += skip_;
    size -= skip_;
    if (!(size <= kCopyBytes ? copy(bytes, size) : refer(bytes, size))) return false;
    skip_ = 0;
    return true;
  }

  int count() const { return count_; }

 private:
  bool copy(const uint8_t* bytes, size_t size) {
    if (staged_ + size > IoThreadImpl::kStagingBytes) return false;
    uint8_t* to = staging_ + staged_;
    if (!last_is_staged_ && !refer(to, 0)) return false;
    std::memcpy(to, bytes, size);
    iov_[count_ - 1].iov_len += size;
    staged_ += size;
    last_is_staged_ = true;
    return true;
  }

  bool refer(const uint8_t* bytes, size_t size) {
    if (count_ == kMaxIov) return false;
    iov_[count_++] = {const_cast<uint8_t*>(bytes), size};
    last_is_staged_ = false;
    return true;
  }

  iovec* iov_;
  uint8_t* staging_;
  size_t skip_;
  size_t staged_ = 0;
  int count_ = 0;
  bool last_is_staged_ = false;
};

}  // namespace

Status TcpSocket::send(Message& message, uint64_t cookie) {
  if (close_asked_ || state_ == State::kDead || thread_.forked()) {
    if (thread_.forked()) return forked_status("the socket to " + remote_.to_string());
    return error(Code::kClosed, "socket to {} is closed", remote_.to_string());
  }
  const size_t bytes = message.bytes();
  if (bytes > limits_.max_send_bytes) {
    return error(Code::kInvalidArgument, "message of {} bytes, {} takes at most {}", bytes,
                 remote_.to_string(), limits_.max_send_bytes);
  }
  if (out_.size() >= kMaxQueued) {
    return error(Code::kResourceExhausted, "{} messages to {} are queued already", out_.size(),
                 remote_.to_string());
  }
  Outgoing& outgoing = enqueue(FrameKind::kMessage, static_cast<uint32_t>(bytes));
  outgoing.message = std::move(message);
  outgoing.cookie = cookie;
  if (state_ != State::kCreated && !writable_armed_) thread_.schedule(this);
  return {};
}

TcpSocket::Outgoing& TcpSocket::enqueue(FrameKind kind, uint32_t bytes) {
  Outgoing& outgoing = out_.push_back({});
  outgoing.kind = kind;
  outgoing.bytes = bytes;
  TcpFrame{bytes, kind}.encode(outgoing.head);
  return outgoing;
}

bool TcpSocket::write_queued() {
  if (thread_.forked()) return false;
  bool worked = false;
  while (!out_.empty() && (state_ == State::kOpen || state_ == State::kFlushing)) {
    iovec iov[kMaxIov];
    const int count = gather(iov);
    const IoResult result = thread_.world().network().write(fd_, iov, count);
    switch (result.kind) {
      case IoResult::Kind::kOk:
        worked = true;
        written(result.bytes);
        break;
      case IoResult::Kind::kWouldBlock:
        arm_writable(true);
        return worked;
      case IoResult::Kind::kEnd:
      case IoResult::Kind::kError:
        fail(error_from_errno(result.error_number, "write"));
        return true;
    }
  }
  arm_writable(false);
  return worked;
}

int TcpSocket::gather(iovec* iov) {
  Gatherer gatherer(iov, thread_.staging(), front_written_);
  for (size_t i = 0; i < out_.size(); ++i) {
    const Outgoing& outgoing = out_[i];
    const Message& message = outgoing.message;
    bool fits = gatherer.add(outgoing.head, sizeof(outgoing.head));
    if (fits) fits = gatherer.add(message.header, message.header_bytes);
    for (size_t part = 0; fits && part < message.count; ++part) {
      fits = gatherer.add(message.parts[part].data(), message.parts[part].size());
    }
    if (!fits) break;
  }
  return gatherer.count();
}

void TcpSocket::written(size_t bytes) {
  bytes_written_ += bytes;
  while (bytes > 0) {
    const size_t left = TcpFrame::kBytes + out_.front().bytes - front_written_;
    if (bytes < left) {
      front_written_ += bytes;
      return;
    }
    bytes -= left;
    front_written_ = 0;
    uint64_t cookie;
    FrameKind kind;
    {
      const Outgoing done = out_.pop_front();
      cookie = done.cookie;
      kind = done.kind;
    }
    if (cookie != 0) handler_->on_sent(*this, cookie, ok_status());
    if (kind == FrameKind::kSocketClose) {
      state_ = State::kLingering;
      thread_.world().network().shutdown_write(fd_);
      if (peer_ended_) end(Status(Code::kClosed, "closed"));
      return;
    }
  }
}

void TcpSocket::arm_writable(bool on) {
  if (on == writable_armed_ || state_ == State::kDead) return;
  writable_armed_ = on;
  const Status status = thread_.poller().set_writable(fd_, on);
  if (!status.ok()) fail(status);
}

}  // namespace be
