#include "be/softnic/rendezvous.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>

#include "be/base/byte_io.h"

namespace be::softnic {
namespace {

constexpr uint32_t kEndpointMagic = 0x31534542;  // "BES1"
constexpr size_t kMaxSocketName = 64;
constexpr int kMaxFds = 3;
constexpr int kBacklog = 1024;
constexpr int kPeerPidfd = 77;  // SO_PEERPIDFD, not in the headers of Debian 12

socklen_t abstract_address(const std::string& name, sockaddr_un* address) {
  *address = {};
  address->sun_family = AF_UNIX;
  std::memcpy(address->sun_path + 1, name.data(), name.size());
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
}

}  // namespace

Result<HostIdentity> read_host_identity() {
  HostIdentity identity;
  identity.uid = geteuid();
  UniqueFd boot(open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC));
  if (!boot.valid()) return error_from_errno(errno, "softnic: reading the boot id");
  const ssize_t length = read(boot.get(), identity.boot_id, sizeof(identity.boot_id) - 1);
  if (length <= 0) return error(Code::kUnsupported, "softnic: the boot id cannot be read");
  if (identity.boot_id[length - 1] == '\n') identity.boot_id[length - 1] = 0;
  struct stat status {};
  if (stat("/proc/self/ns/net", &status) != 0) {
    return error_from_errno(errno, "softnic: reading the network namespace");
  }
  identity.network_namespace = status.st_ino;
  return identity;
}

EndpointBlob encode_endpoint(const Endpoint& endpoint) {
  EndpointBlob blob(kMaxEndpointBytes);
  ByteWriter out(blob);
  out.write_u32(kEndpointMagic);
  out.write_string(endpoint.host.boot_id);
  out.write_u64(endpoint.host.network_namespace);
  out.write_u32(endpoint.host.uid);
  out.write_u64(endpoint.instance);
  out.write_u32(endpoint.qp_number);
  out.write_u32(endpoint.send_depth);
  out.write_string(endpoint.socket_name);
  blob.resize(out.size());
  return blob;
}

Result<Endpoint> decode_endpoint(const EndpointBlob& blob) {
  Endpoint endpoint;
  ByteReader in(blob);
  const bool known = in.read_u32() == kEndpointMagic;
  const std::string_view boot_id = in.read_string(sizeof(endpoint.host.boot_id) - 1);
  std::copy(boot_id.begin(), boot_id.end(), endpoint.host.boot_id);
  endpoint.host.network_namespace = in.read_u64();
  endpoint.host.uid = in.read_u32();
  endpoint.instance = in.read_u64();
  endpoint.qp_number = in.read_u32();
  endpoint.send_depth = in.read_u32();
  endpoint.socket_name = in.read_string(kMaxSocketName);
  if (!known || !in.finished()) {
    return error(Code::kProtocol, "softnic: malformed endpoint of {} bytes", blob.size());
  }
  return endpoint;
}

Status send_packet(int socket, const Packet& packet, const int* fds) {
  iovec iov{.iov_base = const_cast<Packet*>(&packet), .iov_len = sizeof(packet)};
  msghdr message{};
  message.msg_iov = &iov;
  message.msg_iovlen = 1;
  alignas(cmsghdr) uint8_t space[CMSG_SPACE(sizeof(int) * kMaxFds)] = {};
  if (fds != nullptr) {
    const size_t bytes = sizeof(int) * (fds[2] >= 0 ? 3 : 2);
    message.msg_control = space;
    message.msg_controllen = CMSG_SPACE(bytes);
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(bytes);
    std::memcpy(CMSG_DATA(header), fds, bytes);
  }
  if (sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
    return error_from_errno(errno, "softnic: rendezvous");
  }
  return {};
}

ReceiveResult receive_packet(int socket, Packet* packet, PacketFds* fds) {
  iovec iov{.iov_base = packet, .iov_len = sizeof(*packet)};
  msghdr message{};
  message.msg_iov = &iov;
  message.msg_iovlen = 1;
  alignas(cmsghdr) uint8_t space[CMSG_SPACE(sizeof(int) * kMaxFds)];
  message.msg_control = space;
  message.msg_controllen = sizeof(space);
  const ssize_t length = recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (length < 0) {
    return errno == EAGAIN || errno == EINTR ? ReceiveResult::kNothing : ReceiveResult::kClosed;
  }
  UniqueFd* places[kMaxFds] = {&fds->control, &fds->event, &fds->data};
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof(int));
      if (i < kMaxFds) {
        places[i]->reset(fd);
      } else {
        ::close(fd);
      }
    }
  }
  if (length == 0) return ReceiveResult::kClosed;
  if (length != sizeof(*packet) || (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) ||
      packet->magic != Packet::kMagic) {
    return ReceiveResult::kMalformed;
  }
  return ReceiveResult::kPacket;
}

Result<PeerProcess> peer_process(int socket) {
  ucred credentials{};
  socklen_t length = sizeof(credentials);
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &length) != 0) {
    return error_from_errno(errno, "softnic: SO_PEERCRED");
  }
  if (credentials.uid != geteuid()) {
    return error(Code::kPermission, "softnic: the peer runs as uid {}, we as {}", credentials.uid,
                 geteuid());
  }
  if (credentials.pid <= 0) {
    return error(Code::kUnsupported, "softnic: the peer lives in a pid namespace we cannot see");
  }
  PeerProcess process{.pid = credentials.pid, .pidfd = {}};
  // From the socket itself (Linux 6.5), else by number, which could be another process by now.
  int pidfd = -1;
  length = sizeof(pidfd);
  if (getsockopt(socket, SOL_SOCKET, kPeerPidfd, &pidfd, &length) != 0) {
    pidfd = static_cast<int>(syscall(SYS_pidfd_open, credentials.pid, 0));
  }
  if (pidfd < 0) return error_from_errno(errno, "softnic: pidfd of the peer");
  process.pidfd.reset(pidfd);
  return process;
}

Result<UniqueFd> listen_abstract(const std::string& name) {
  UniqueFd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return error_from_errno(errno, "softnic: socket");
  sockaddr_un address;
  const socklen_t length = abstract_address(name, &address);
  if (bind(fd.get(), reinterpret_cast<sockaddr*>(&address), length) != 0 ||
      listen(fd.get(), kBacklog) != 0) {
    return error_from_errno(errno, "softnic: listening for peers");
  }
  return fd;
}

Result<UniqueFd> connect_abstract(const std::string& name) {
  UniqueFd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return error_from_errno(errno, "softnic: socket");
  sockaddr_un address;
  const socklen_t length = abstract_address(name, &address);
  if (connect(fd.get(), reinterpret_cast<sockaddr*>(&address), length) != 0) {
    if (errno == EAGAIN) return error(Code::kResourceExhausted, "softnic: the peer is busy");
    return error_from_errno(errno, "softnic: connecting to the peer");
  }
  return fd;
}

}  // namespace be::softnic
