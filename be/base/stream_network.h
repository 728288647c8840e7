// Byte streams (TCP) without naming the kernel: listen, connect, read, write, close.
//
// Nothing blocks except resolve(). Descriptors are registered with the Poller of the thread
// that uses them; one thread uses a descriptor at a time. The virtual form (be/sim) hands out
// handles and moves bytes in virtual time, with faults.
#pragma once

#include <sys/uio.h>

#include <compare>
#include <cstddef>
#include <cstdint>
#include <string>

#include "be/base/status.h"

namespace be {

// An IP address and a port. IPv4 is held as its IPv4-mapped IPv6 form.
struct Address {
  uint8_t ip[16] = {};
  uint16_t port = 0;  // host byte order

  auto operator<=>(const Address&) const = default;  // NOLINT(modernize-use-nullptr): a false alarm
  bool is_ipv4() const;
  bool is_loopback() const;
  std::string to_string() const;  // "127.0.0.1:9000", "[::1]:9000"

  // Numeric forms only: "10.0.0.1:9000", "[fe80::1]:9000".
  static Result<Address> parse(const std::string& text);
};

// What one read or write did.
struct IoResult {
  enum class Kind : uint8_t {
    kOk,          // `bytes` > 0 were moved
    kWouldBlock,  // nothing now: wait for readiness
    kEnd,         // read: the peer has closed its direction
    kError,       // `error_number` says why
  };
  Kind kind = Kind::kOk;
  int error_number = 0;
  size_t bytes = 0;
};

class StreamNetwork {
 public:
  virtual ~StreamNetwork() = default;

  // "host:port" to an address, IPv4 if the host has one; asks the name service and may block:
  // never on an I/O thread.
  virtual Result<Address> resolve(const std::string& host_and_port) = 0;

  // Port 0 takes any free port: ask local_address. A port in use is kAlreadyExists.
  virtual Result<int> listen(const Address& address) = 0;
  // -1: nobody is waiting to be accepted. kResourceExhausted: no descriptor was left, and one
  // waiting connection was closed instead.
  virtual Result<int> accept(int listener) = 0;

  // Begins; the descriptor becomes writable when it is decided: then connect_result().
  virtual Result<int> connect(const Address& address) = 0;
  virtual Status connect_result(int fd) = 0;

  virtual IoResult read(int fd, const iovec* iov, int count) = 0;
  virtual IoResult write(int fd, const iovec* iov, int count) = 0;  // never raises SIGPIPE
  virtual void shutdown_write(int fd) = 0;
  virtual void close(int fd) = 0;

  virtual Result<Address> local_address(int fd) = 0;
  virtual Result<Address> remote_address(int fd) = 0;
};

}  // namespace be
