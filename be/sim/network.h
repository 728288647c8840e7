// StreamNetwork in virtual time: byte streams between Hosts with latency, short reads, short
// writes and full buffers.
//
// The kernel's part of a host: it goes on while the process is stopped, and when the process is
// killed it closes what was open. As Linux does: closing with unread data resets the peer.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <string>

#include "be/base/stream_network.h"
#include "be/sim/descriptor.h"
#include "be/sim/simulation.h"

namespace be::sim {

class Host;

// One end of a connection.
class Stream final : public Descriptor, public std::enable_shared_from_this<Stream> {
 public:
  Stream(Simulation& simulation, Nanoseconds latency, const Address& local, const Address& remote)
      : simulation_(simulation), latency_(latency), local_(local), remote_(remote) {}

  bool readable() const override { return !inbox_.empty() || ended_ || reset_; }
  bool writable() const override { return reset_ || refused_ || (connected_ && room() > 0); }
  bool hung_up() const override { return reset_ || refused_; }
  void on_close() override;

  IoResult read(const iovec* iov, int count, Random& random);
  IoResult write(const iovec* iov, int count, Random& random);
  void shutdown_write();
  void reset();  // the connection is broken, whatever the peer thinks

  // --- Set-up
  void join(const std::shared_ptr<Stream>& peer) { peer_ = peer; }
  void connected() {
    connected_ = true;
    changed();
  }
  void refuse() {
    refused_ = true;
    changed();
  }
  bool refused() const { return refused_; }
  bool is_connected() const { return connected_; }
  const Address& local() const { return local_; }
  const Address& remote() const { return remote_; }

 private:
  static constexpr size_t kCapacity = 64 << 10;

  size_t room() const { return unread_ >= kCapacity ? 0 : kCapacity - unread_; }
  void later(Task action);  // at the peer, in order
  void arrive(const std::string& bytes);

  Simulation& simulation_;
  const Nanoseconds latency_;
  const Address local_;
  const Address remote_;
  std::weak_ptr<Stream> peer_;
  std::string inbox_;
  size_t unread_ = 0;  // bytes that we have written and the peer has not read
  Time last_arrival_{};
  bool connected_ = false;
  bool refused_ = false;
  bool ended_ = false;  // the peer writes no more
  bool reset_ = false;
  bool write_ended_ = false;  // we write no more
  bool closed_ = false;
};

class StreamListener final : public Descriptor {
 public:
  explicit StreamListener(const Address& address) : address_(address) {}
  bool readable() const override { return !waiting.empty(); }
  void on_close() override;
  const Address& address() const { return address_; }

  std::deque<std::shared_ptr<Stream>> waiting;
  std::map<Address, std::weak_ptr<StreamListener>>* registry = nullptr;

 private:
  const Address address_;
};

// Who listens where.
struct Internet {
  Nanoseconds latency = 20us;
  std::map<Address, std::weak_ptr<StreamListener>> listeners;
};

class VirtualNetwork final : public StreamNetwork {
 public:
  VirtualNetwork(Host& host, Internet& internet) : host_(host), internet_(internet) {}

  Result<Address> resolve(const std::string& text) override { return Address::parse(text); }
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
  Stream* stream(int fd) const;

  Host& host_;
  Internet& internet_;
  uint16_t next_port_ = 40000;
};

}  // namespace be::sim
