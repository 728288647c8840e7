#include "be/base/kernel_network.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <memory>
#include <utility>

namespace be {
namespace {

constexpr int kBacklog = 1024;

// An Address as the kernel wants it.
struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t size = sizeof(storage);

  SocketAddress() = default;
  explicit SocketAddress(const Address& address) {
    if (address.is_ipv4()) {
      auto* in = reinterpret_cast<sockaddr_in*>(&storage);
      in->sin_family = AF_INET;
      in->sin_port = htons(address.port);
      std::memcpy(&in->sin_addr, address.ip + 12, 4);
      size = sizeof(sockaddr_in);
    } else {
      auto* in6 = reinterpret_cast<sockaddr_in6*>(&storage);
      in6->sin6_family = AF_INET6;
      in6->sin6_port = htons(address.port);
      std::memcpy(&in6->sin6_addr, address.ip, 16);
      size = sizeof(sockaddr_in6);
    }
  }

  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
};

Result<Address> address_of(const sockaddr* from) {
  Address address;
  if (from->sa_family == AF_INET) {
    const auto* in = reinterpret_cast<const sockaddr_in*>(from);
    address.ip[10] = address.ip[11] = 0xff;
    std::memcpy(address.ip + 12, &in->sin_addr, 4);
    address.port = ntohs(in->sin_port);
    return address;
  }
  if (from->sa_family == AF_INET6) {
    const auto* in6 = reinterpret_cast<const sockaddr_in6*>(from);
    std::memcpy(address.ip, &in6->sin6_addr, 16);
    address.port = ntohs(in6->sin6_port);
    return address;
  }
  return error(Code::kUnsupported, "address family {} is not IP", from->sa_family);
}

Result<UniqueFd> new_socket(const Address& address) {
  UniqueFd fd(socket(address.is_ipv4() ? AF_INET : AF_INET6,
                     SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return error_from_errno(errno, "socket");
  return fd;
}

// Fails only on a descriptor that is no TCP socket, which later calls will say.
void set_option(int fd, int level, int option, int value) {
  setsockopt(fd, level, option, &value, sizeof(value));
}

int open_reserve() { return open("/dev/null", O_RDONLY | O_CLOEXEC); }

IoResult failure_of(int error_number) {
  if (error_number == EAGAIN || error_number == EWOULDBLOCK) {
    return {.kind = IoResult::Kind::kWouldBlock};
  }
  return {.kind = IoResult::Kind::kError, .error_number = error_number};
}

Status resolver_error(int code, const std::string& host) {
  const std::string what = fmt::format("host '{}'", host);
  if (code == EAI_SYSTEM) return error_from_errno(errno, what);
  const bool temporary = code == EAI_AGAIN || code == EAI_MEMORY;
  return error(temporary ? Code::kUnavailable : Code::kNotFound, "{}: {}", what,
               gai_strerror(code));
}

}  // namespace

ReserveDescriptor::ReserveDescriptor() : fd_(open_reserve()) {}

void ReserveDescriptor::turn_away_one(int listener) {
  const std::lock_guard lock(mutex_);
  fd_.reset();
  UniqueFd unlucky(accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  unlucky.reset();
  fd_.reset(open_reserve());
}

Result<Address> KernelNetwork::resolve(const std::string& host_and_port) {
  Result<Address> numeric = Address::parse(host_and_port);
  if (numeric.ok()) return numeric;

  const size_t colon = host_and_port.rfind(':');
  const std::string host = host_and_port.substr(0, colon);
  const auto port = colon == std::string::npos
                        ? numeric
                        : Address::parse("0.0.0.0" + host_and_port.substr(colon));
  if (!port.ok() || host.empty() || host.find_first_of(":[] ") != std::string::npos) {
    return error(Code::kInvalidArgument, "'{}' is not host:port", host_and_port);
  }

  if (host == "localhost") {  // RFC 6761, 6.3: also where no hosts file says so
    return Address::parse("127.0.0.1" + host_and_port.substr(colon));
  }
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  const int code = getaddrinfo(host.c_str(), nullptr, &hints, &list);
  if (code != 0 || list == nullptr) return resolver_error(code, host);
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(list, &freeaddrinfo);

  const addrinfo* chosen = list;
  for (const addrinfo* info = list; info != nullptr; info = info->ai_next) {
    if (info->ai_family == AF_INET) {
      chosen = info;
      break;
    }
  }
  BE_ASSIGN_OR_RETURN(Address address, address_of(chosen->ai_addr));
  address.port = port->port;
  return address;
}

Result<int> KernelNetwork::listen(const Address& address) {
  BE_ASSIGN_OR_RETURN(UniqueFd fd, new_socket(address));
  set_option(fd.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  if (!address.is_ipv4()) set_option(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, 0);
  SocketAddress to(address);
  if (bind(fd.get(), to.get(), to.size) != 0 || ::listen(fd.get(), kBacklog) != 0) {
    return error_from_errno(errno, fmt::format("listen on {}", address.to_string()));
  }
  return fd.release();
}

Result<int> KernelNetwork::accept(int listener) {
  for (;;) {
    const int fd = accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd >= 0) {
      set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
      return fd;
    }
    switch (errno) {
      case EAGAIN:
        return -1;
      // A connection that died while it waited (accept(2), "Error handling"): the next one.
      case EINTR:
      case ECONNABORTED:
      case EPROTO:
      case ENETDOWN:
      case ENETUNREACH:
      case EHOSTDOWN:
      case EHOSTUNREACH:
        continue;
      case EMFILE:
      case ENFILE: {
        const Status status = error_from_errno(errno, "accept");
        reserve_.turn_away_one(listener);
        return status;
      }
      default:
        return error_from_errno(errno, "accept");
    }
  }
}

Result<int> KernelNetwork::connect(const Address& address) {
  BE_ASSIGN_OR_RETURN(UniqueFd fd, new_socket(address));
  set_option(fd.get(), IPPROTO_TCP, TCP_NODELAY, 1);
  SocketAddress to(address);
  // EINTR too leaves the attempt under way.
  if (::connect(fd.get(), to.get(), to.size) != 0 && errno != EINPROGRESS && errno != EINTR) {
    return error_from_errno(errno, fmt::format("connect to {}", address.to_string()));
  }
  return fd.release();
}

Status KernelNetwork::connect_result(int fd) {
  int error_number = 0;
  socklen_t size = sizeof(error_number);
  if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error_number, &size) != 0) error_number = errno;
  if (error_number != 0) return error_from_errno(error_number, "connect");
  const Result<Address> local = local_address(fd);
  const Result<Address> remote = remote_address(fd);
  if (!local.ok()) return local.status();
  if (!remote.ok()) return remote.status();
  // TCP connects to itself when the port it draws is the one it calls and nobody listens there;
  // the server that belongs there could then not start again.
  if (*local == *remote) return error_from_errno(ECONNREFUSED, "connect");
  return {};
}

// One piece, the common case of small messages, goes the shorter way through the kernel.
IoResult KernelNetwork::read(int fd, const iovec* iov, int count) {
  for (;;) {
    const ssize_t bytes = count == 1 ? recv(fd, iov->iov_base, iov->iov_len, 0)
                                     : readv(fd, iov, std::min(count, IOV_MAX));
    if (bytes > 0) return {.bytes = static_cast<size_t>(bytes)};
    if (bytes == 0) return {.kind = IoResult::Kind::kEnd};
    if (errno != EINTR) return failure_of(errno);
  }
}

IoResult KernelNetwork::write(int fd, const iovec* iov, int count) {
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(iov);
  message.msg_iovlen = static_cast<size_t>(std::min(count, IOV_MAX));
  for (;;) {
    const ssize_t bytes = count == 1 ? send(fd, iov->iov_base, iov->iov_len, MSG_NOSIGNAL)
                                     : sendmsg(fd, &message, MSG_NOSIGNAL);
    if (bytes >= 0) return {.bytes = static_cast<size_t>(bytes)};
    if (errno != EINTR) return failure_of(errno);
  }
}

void KernelNetwork::shutdown_write(int fd) { shutdown(fd, SHUT_WR); }

void KernelNetwork::close(int fd) { ::close(fd); }

Result<Address> KernelNetwork::local_address(int fd) {
  SocketAddress address;
  if (getsockname(fd, address.get(), &address.size) != 0) {
    return error_from_errno(errno, "getsockname");
  }
  return address_of(address.get());
}

Result<Address> KernelNetwork::remote_address(int fd) {
  SocketAddress address;
  if (getpeername(fd, address.get(), &address.size) != 0) {
    return error_from_errno(errno, "getpeername");
  }
  return address_of(address.get());
}

}  // namespace be
