// How two softnic devices find each other: endpoint blobs, and messages with descriptors over
// an abstract Unix socket (SOCK_SEQPACKET: one message, one packet).
//
//   initiator                                        acceptor (the channel of the other QP)
//       connect, uid by SO_PEERCRED  ----------------> accept, uid by SO_PEERCRED
//       Hello   first half of the token, fds --------> names its QP; token compared
//       <-------- Accept  second half of the token, fds
//       ... the connection stays open; at the end of either QP:
//       Reset  "I shall never touch your memory through this QP again" (each way, once)
//
// Each half of the token is shown by one end only, so whoever squats on the socket's name learns
// nothing that would make it pass for the other end.
//
// Pure but for send_packet and receive_packet, which never block. Everything received is
// bounded and checked by its user.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>

#include "be/base/status.h"
#include "be/base/unique_fd.h"
#include "be/verbs/device.h"

namespace be::softnic {

inline constexpr size_t kTokenHalf = 8;

// What tells whether two processes can share memory at all.
struct HostIdentity {
  char boot_id[40] = {};
  uint64_t network_namespace = 0;  // abstract sockets live in it
  uint32_t uid = 0;
};
Result<HostIdentity> read_host_identity();

struct Endpoint {
  HostIdentity host;
  uint64_t instance = 0;  // of the device
  uint32_t qp_number = 0;
  uint32_t send_depth = 0;  // the ring it will need
  std::string socket_name;  // abstract, without the leading zero
};
EndpointBlob encode_endpoint(const Endpoint& endpoint);
Result<Endpoint> decode_endpoint(const EndpointBlob& blob);

enum class PacketKind : uint32_t { kHello = 1, kAccept = 2, kReset = 3 };

struct Packet {
  static constexpr uint32_t kMagic = 0x42655344;  // changes with the layout

  uint32_t magic = kMagic;
  PacketKind kind = PacketKind::kReset;
  uint8_t token_half[kTokenHalf] = {};
  uint32_t target_qp = 0;
  uint32_t own_qp = 0;
  uint64_t instance = 0;
  uint64_t channel = 0;
  uint64_t control_size = 0;
  uint64_t data_size = 0;
  uint64_t regions_offset = 0;
  uint64_t ring_offset = 0;  // where the receiver of this packet writes its messages
  uint64_t block_offset = 0;
  uint64_t recv_bell_offset = 0;
  uint64_t send_bell_offset = 0;
  uint32_t ring_depth = 0;
  uint32_t recv_bit = 0;
  uint32_t send_bit = 0;
  uint32_t same_cq = 0;  // acknowledgements may ride in slots
};

struct PacketFds {
  UniqueFd control;
  UniqueFd event;
  UniqueFd data;
};

enum class ReceiveResult : uint8_t { kPacket, kNothing, kClosed, kMalformed };

// `fds`: control, event and, unless -1, data; null for a packet without descriptors.
Status send_packet(int socket, const Packet& packet, const int* fds);
ReceiveResult receive_packet(int socket, Packet* packet, PacketFds* fds);

// The other end's process, if it is of our user, and a descriptor that reports its exit.
struct PeerProcess {
  pid_t pid = 0;
  UniqueFd pidfd;
};
Result<PeerProcess> peer_process(int socket);

Result<UniqueFd> listen_abstract(const std::string& name);
// kResourceExhausted: the listener is busy, try again.
Result<UniqueFd> connect_abstract(const std::string& name);

}  // namespace be::softnic
