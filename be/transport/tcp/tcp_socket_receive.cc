// The receiving half of TcpSocket.
#include <algorithm>
#include <cstring>
#include <utility>

#include "be/transport/tcp/tcp_socket.h"

namespace be {

bool TcpSocket::read_input() {
  if (thread_.forked()) return false;
  if (state_ == State::kFlushing || state_ == State::kLingering) return drain_input();
  bool worked = false;
  for (int turn = 0; turn < kReadsPerTurn && reading(); ++turn) {
    uint8_t* scratch = thread_.scratch() + IoThreadImpl::kScratchHeadroom;
    iovec iov[2];
    int count = 0;
    const size_t wanted = incoming_ ? incoming_.size() - filled_ : 0;
    if (wanted > 0) iov[count++] = {incoming_.data() + filled_, wanted};
    iov[count++] = {scratch, read_ahead_};
    const size_t asked = wanted + read_ahead_;

    const IoResult result = thread_.world().network().read(fd_, iov, count);
    switch (result.kind) {
      case IoResult::Kind::kOk:
        break;
      case IoResult::Kind::kWouldBlock:
        return worked;
      case IoResult::Kind::kEnd:
        end_of_stream();
        return true;
      case IoResult::Kind::kError:
        fail(error_from_errno(result.error_number, "read"));
        return true;
    }
    worked = true;
    const size_t direct = std::min(result.bytes, wanted);
    filled_ += direct;
    if (wanted > 0 && direct == wanted) deliver(std::move(incoming_));
    if (result.bytes > direct && state_ == State::kOpen) parse(scratch, result.bytes - direct);
    if (result.bytes < asked) return true;  // there was no more
  }
  return worked;
}

// Closed by our side: what still comes is of no interest, but its end is.
bool TcpSocket::drain_input() {
  const iovec iov = {thread_.scratch(), IoThreadImpl::kScratchBytes};
  for (int turn = 0; turn < kReadsPerTurn; ++turn) {
    const IoResult result = thread_.world().network().read(fd_, &iov, 1);
    switch (result.kind) {
      case IoResult::Kind::kOk:
        continue;
      case IoResult::Kind::kWouldBlock:
        return turn > 0;
      case IoResult::Kind::kEnd:
        end_of_stream();
        return true;
      case IoResult::Kind::kError:
        if (state_ == State::kLingering) {
          end(Status(Code::kClosed, "closed"));
        } else {
          fail(error_from_errno(result.error_number, "read"));
        }
        return true;
    }
  }
  return true;
}

void TcpSocket::end_of_stream() {
  switch (state_) {
    case State::kOpen:
      if (incoming_ || head_size_ > 0) {
        fail(Status(Code::kUnavailable, "connection lost in the middle of a frame"));
      } else {
        fail(Status(Code::kUnavailable, "connection lost"));
      }
      return;
    case State::kFlushing:
      // It may still read: both ends closed at the same time.
      peer_ended_ = true;
      thread_.poller().set_readable(fd_, false).ignore();
      return;
    case State::kLingering:
      end(Status(Code::kClosed, "closed"));
      return;
    case State::kCreated:
    case State::kDead:
      return;
  }
}

// `data` is preceded by room for the piece of a header that came before.
void TcpSocket::parse(uint8_t* data, size_t size) {
  data -= head_size_;
  size += head_size_;
  std::memcpy(data, head_, head_size_);
  head_size_ = 0;
  while (state_ == State::kOpen && size > 0) {
    if (size < TcpFrame::kBytes) {
      std::memcpy(head_, data, size);
      head_size_ = size;
      return;
    }
    TcpFrame frame;
    const Status status = TcpFrame::decode(data, limits_.max_receive_bytes, &frame);
    if (!status.ok()) return fail(status);
    if (frame.kind == FrameKind::kSocketClose) {
      return end(error(Code::kClosed, "closed by {}", remote_.to_string()));
    }
    Buffer message;
    if (frame.length > 0) {
      Result<Buffer> allocated = thread_.pool().allocate_buffer(frame.length);
      if (!allocated.ok()) {
        const size_t cap = thread_.pool().stats().cap_bytes;
        if (frame.length > cap) {
          return fail(error(Code::kResourceExhausted, "a message of {} bytes, the memory cap is {}",
                            frame.length, cap));
        }
        if (allocated.status().code() != Code::kResourceExhausted) return fail(allocated.status());
        return stall(data, size);
      }
      message = *std::move(allocated);
      stop_patience_timer();
    }
    data += TcpFrame::kBytes;
    size -= TcpFrame::kBytes;
    const size_t here = std::min<size_t>(size, frame.length);
    if (here > 0) std::memcpy(message.data(), data, here);
    data += here;
    size -= here;
    read_ahead_ = frame.length > kLargeBytes ? kReadAheadAfterLarge : IoThreadImpl::kScratchBytes;
    if (here < frame.length) {
      incoming_ = std::move(message);
      filled_ = here;
      return;
    }
    deliver(std::move(message));
  }
}

void TcpSocket::deliver(Buffer message) {
  thread_.read_directly(this);
  handler_->on_message(*this, std::move(message));
}

void TcpSocket::stall(const uint8_t* data, size_t size) {
  stalled_.assign(data, data + size);
  thread_.poller().set_readable(fd_, false).ignore();
  thread_.wait_for_memory(this);
  if (patience_timer_ != 0) return;
  const Time until = saturating_add(thread_.now(), limits_.memory_patience);
  patience_timer_ = thread_.timers().schedule(until, [this] {
    patience_timer_ = 0;
    fail(error(
        Code::kResourceExhausted,
        "no memory for a message in {} ms: memory.cap_bytes = {} is reached",
        std::chrono::duration_cast<std::chrono::milliseconds>(limits_.memory_patience).count(),
        thread_.pool().stats().cap_bytes));
  });
}

void TcpSocket::stop_patience_timer() {
  if (patience_timer_ != 0) thread_.timers().cancel(std::exchange(patience_timer_, 0));
}

void TcpSocket::on_memory() {
  if (state_ != State::kOpen || stalled_.empty()) return;
  std::vector<uint8_t> input = std::exchange(stalled_, {});
  parse(input.data(), input.size());
  if (reading()) thread_.poller().set_readable(fd_, true).ignore();
}

}  // namespace be
