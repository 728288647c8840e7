// A World for a Node whose peers are the fuzzer: connections are socket pairs (no ports that run
// out, no time spent in TCP), and time passes when the story says so.
#pragma once

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <deque>
#include <utility>

#include "be/base/unique_fd.h"
#include "be/base/world.h"
#include "tests/common/must_hold.h"

namespace be::fuzz {

class FuzzNetwork final : public StreamNetwork {
 public:
  // A connection to whoever listens: our end.
  UniqueFd dial() {
    auto [ours, theirs] = make_pair();
    waiting_.push_back(std::move(theirs));
    const uint64_t one = 1;
    MUST_HOLD(::write(listener_, &one, sizeof(one)) == sizeof(one));
    return std::move(ours);
  }
  // The connections that were made to the world outside: our ends.
  std::deque<UniqueFd> dialled;

  Result<Address> resolve(const std::string&) override { return Status(Code::kNotFound, "none"); }
  Result<int> listen(const Address&) override {
    listener_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return listener_;
  }
  Result<int> accept(int) override {
    if (waiting_.empty()) {
      uint64_t count = 0;
      if (::read(listener_, &count, sizeof(count)) < 0) return -1;
      return -1;
    }
    UniqueFd next = std::move(waiting_.front());
    waiting_.pop_front();
    return next.release();
  }
  Result<int> connect(const Address&) override {
    auto [ours, theirs] = make_pair();
    dialled.push_back(std::move(ours));
    return theirs.release();
  }
  Status connect_result(int) override { return {}; }
  IoResult read(int fd, const iovec* iov, int count) override {
    return real().read(fd, iov, count);
  }
  IoResult write(int fd, const iovec* iov, int count) override {
    return real().write(fd, iov, count);
  }
  void shutdown_write(int fd) override { real().shutdown_write(fd); }
  void close(int fd) override { real().close(fd); }
  Result<Address> local_address(int) override { return Address::parse("127.0.0.1:1"); }
  Result<Address> remote_address(int) override { return Address::parse("127.0.0.1:2"); }

 private:
  static StreamNetwork& real() { return kernel_world().network(); }
  static std::pair<UniqueFd, UniqueFd> make_pair() {
    int fds[2];
    MUST_HOLD(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) == 0);
    return {UniqueFd(fds[0]), UniqueFd(fds[1])};
  }

  int listener_ = -1;
  std::deque<UniqueFd> waiting_;
};

class FuzzClock final : public Clock {
 public:
  Time now() const override { return now_; }
  void advance(Nanoseconds by) { now_ += by; }

 private:
  Time now_ = Time(1h);
};

class FuzzWorld final : public World {
 public:
  FuzzClock& clock() override { return clock_; }
  Executor& executor() override { return kernel_world().executor(); }
  FuzzNetwork& network() override { return network_; }
  Result<std::unique_ptr<Poller>> make_poller() override { return kernel_world().make_poller(); }
  // The same for every input: a finding can be shown again.
  void random_bytes(std::span<uint8_t> out) override {
    for (size_t i = 0; i < out.size(); ++i) out[i] = static_cast<uint8_t>(i * 7 + 1);
  }

 private:
  FuzzClock clock_;
  FuzzNetwork network_;
};

}  // namespace be::fuzz
