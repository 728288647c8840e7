// StreamNetwork over kernel TCP (see stream_network.h). Any thread.
//
// All sockets are non-blocking, close-on-exec and without Nagle's delay. IPv4 addresses get an
// AF_INET socket; a listener on [::] takes IPv4 connections too.
#pragma once

#include <mutex>

#include "be/base/stream_network.h"
#include "be/base/unique_fd.h"

namespace be {

// One descriptor kept back, so that a listener can still get rid of a waiting connection when no
// other is left. Without it the listener would stay ready and its thread would spin; the peer
// sees a closed connection instead of silence.
class ReserveDescriptor {
 public:
  ReserveDescriptor();
  void turn_away_one(int listener);

 private:
  std::mutex mutex_;
  UniqueFd fd_;  // guarded by mutex_
};

class KernelNetwork final : public StreamNetwork {
 public:
  Result<Address> resolve(const std::string& host_and_port) override;
  Result<int> listen(const Address& address) override;
  Result<int> accept(int listener) override;
  Result<int> connect(const Address& address) override;
  Status connect_result(int fd) override;
  IoResult read(int fd, const iovec* iov, int count) override;
  IoResult write(int fd, const iovec* iov, int count) override;
  void shutdown_write(int fd) override;
  void close(int fd) override;
  Result<Address> local_address(int fd) override;
  Result<Address> remote_address(int fd) override;

 private:
  ReserveDescriptor reserve_;
};

}  // namespace be
