// One end of a connection in virtual time; see network.h.
#include <algorithm>
#include <cerrno>
#include <utility>

#include "be/sim/network.h"

namespace be::sim {
namespace {

constexpr uint64_t kShortOneIn = 8;  // reads and writes that move only a part

}  // namespace

void Stream::later(Task action) {
  last_arrival_ = std::max(last_arrival_, simulation_.now() + latency_);
  simulation_.at(last_arrival_, std::move(action));
}

IoResult Stream::write(const iovec* iov, int count, Random& random) {
  if (refused_) return {IoResult::Kind::kError, ECONNREFUSED, 0};
  if (reset_) return {IoResult::Kind::kError, ECONNRESET, 0};
  if (write_ended_) return {IoResult::Kind::kError, EPIPE, 0};
  if (!connected_ || room() == 0) return {IoResult::Kind::kWouldBlock, 0, 0};
  std::string bytes;
  for (int i = 0; i < count; ++i) {
    bytes.append(static_cast<const char*>(iov[i].iov_base), iov[i].iov_len);
  }
  if (bytes.empty()) return {IoResult::Kind::kOk, 0, 0};
  size_t taken = std::min(bytes.size(), room());
  if (random.one_in(kShortOneIn)) taken = random.between(1, taken);
  bytes.resize(taken);
  unread_ += taken;
  later([peer = peer_, bytes = std::move(bytes)] {
    if (const auto end = peer.lock()) end->arrive(bytes);
  });
  return {IoResult::Kind::kOk, 0, taken};
}

void Stream::arrive(const std::string& bytes) {
  if (reset_) return;
  if (closed_) {  // nobody will read it: the sender is told
    later([peer = peer_] {
      if (const auto end = peer.lock()) end->reset();
    });
    return;
  }
  inbox_ += bytes;
  changed();
}

IoResult Stream::read(const iovec* iov, int count, Random& random) {
  if (refused_) return {IoResult::Kind::kError, ECONNREFUSED, 0};
  if (reset_) return {IoResult::Kind::kError, ECONNRESET, 0};
  if (inbox_.empty()) {
    return {ended_ ? IoResult::Kind::kEnd : IoResult::Kind::kWouldBlock, 0, 0};
  }
  size_t limit = inbox_.size();
  if (random.one_in(kShortOneIn)) limit = random.between(1, limit);
  size_t moved = 0;
  for (int i = 0; i < count && moved < limit; ++i) {
    const size_t part = std::min(iov[i].iov_len, limit - moved);
    std::copy_n(inbox_.data() + moved, part, static_cast<char*>(iov[i].iov_base));
    moved += part;
  }
  inbox_.erase(0, moved);
  if (const auto end = peer_.lock()) {
    end->unread_ -= moved;
    end->changed();
  }
  return {IoResult::Kind::kOk, 0, moved};
}

void Stream::shutdown_write() {
  if (write_ended_ || reset_) return;
  write_ended_ = true;
  later([peer = peer_] {
    const auto end = peer.lock();
    if (end == nullptr || end->closed_) return;
    end->ended_ = true;
    end->changed();
  });
}

void Stream::reset() {
  if (reset_) return;
  reset_ = true;
  inbox_.clear();
  changed();
}

void Stream::on_close() {
  if (closed_) return;
  closed_ = true;
  if (inbox_.empty()) {
    shutdown_write();
  } else {
    later([peer = peer_] {
      if (const auto end = peer.lock()) end->reset();
    });
  }
  // What is on its way to us finds us closed: keep this end until it has arrived.
  simulation_.after(4 * latency_ + 1s, [self = shared_from_this()] {});
}

void StreamListener::on_close() {
  if (registry != nullptr) registry->erase(address_);
  for (const auto& stream : waiting) stream->on_close();
  waiting.clear();
}

}  // namespace be::sim
