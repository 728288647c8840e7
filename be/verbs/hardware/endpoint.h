// What one end tells the other of its queue pair, and its form in an EndpointBlob.
//
//   'H' version | link layer | MTU | pad | QPN u32 | PSN u32 | LID u16 | GID 16 bytes   = 31 bytes
//
// Pure. A blob comes from a peer: decode checks its length and every field (kProtocol).
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

#include "be/base/status.h"
#include "be/verbs/device.h"

namespace be::hardware {

struct Endpoint {
  uint8_t link_layer = IBV_LINK_LAYER_ETHERNET;  // or IBV_LINK_LAYER_INFINIBAND
  ibv_mtu mtu = IBV_MTU_1024;                    // active at the port
  uint32_t queue_pair_number = 0;                // 24 bits, as the PSN
  uint32_t packet_sequence_number = 0;
  uint16_t lid = 0;  // InfiniBand
  ibv_gid gid{};     // RoCE
};

EndpointBlob encode(const Endpoint& endpoint);
Result<Endpoint> decode(const EndpointBlob& blob);

// Why the two cannot talk, if they cannot: kUnsupported.
Status check_reachable(const Endpoint& local, const Endpoint& remote);

inline ibv_mtu path_mtu(ibv_mtu local, ibv_mtu remote) { return local < remote ? local : remote; }
inline uint32_t mtu_bytes(ibv_mtu mtu) { return 128u << mtu; }  // IBV_MTU_256 is 1

}  // namespace be::hardware
