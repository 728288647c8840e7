#include "be/verbs/hardware/endpoint.h"

#include <algorithm>
#include <string_view>

#include "be/base/byte_io.h"

namespace be::hardware {
namespace {

constexpr uint8_t kMagic = 'H';
constexpr uint8_t kVersion = 1;
constexpr size_t kBlobBytes = 31;
constexpr uint32_t kLargest24Bits = (1u << 24) - 1;
static_assert(kBlobBytes <= kMaxEndpointBytes);

Status broken(std::string_view field, uint64_t value) {
  return error(Code::kProtocol, "the peer's RDMA endpoint has the impossible {} {}", field, value);
}

std::string_view link_layer_name(uint8_t link_layer) {
  return link_layer == IBV_LINK_LAYER_ETHERNET ? "RoCE" : "InfiniBand";
}

}  // namespace

EndpointBlob encode(const Endpoint& endpoint) {
  EndpointBlob blob(kBlobBytes);
  ByteWriter out(blob);
  out.write_u8(kMagic);
  out.write_u8(kVersion);
  out.write_u8(endpoint.link_layer);
  out.write_u8(static_cast<uint8_t>(endpoint.mtu));
  out.write_u8(0);
  out.write_u32(endpoint.queue_pair_number);
  out.write_u32(endpoint.packet_sequence_number);
  out.write_u16(endpoint.lid);
  out.write_bytes(endpoint.gid.raw);
  return blob;
}

Result<Endpoint> decode(const EndpointBlob& blob) {
  ByteReader in(blob);
  const uint8_t magic = in.read_u8();
  const uint8_t version = in.read_u8();
  Endpoint endpoint;
  endpoint.link_layer = in.read_u8();
  const uint8_t mtu = in.read_u8();
  in.skip(1);
  endpoint.queue_pair_number = in.read_u32();
  endpoint.packet_sequence_number = in.read_u32();
  endpoint.lid = in.read_u16();
  in.read_into(endpoint.gid.raw);
  if (!in.finished()) return broken("length", blob.size());

  if (magic != kMagic) return broken("first byte", magic);
  if (version != kVersion) return broken("version", version);
  if (endpoint.link_layer != IBV_LINK_LAYER_ETHERNET &&
      endpoint.link_layer != IBV_LINK_LAYER_INFINIBAND) {
    return broken("link layer", endpoint.link_layer);
  }
  if (mtu < IBV_MTU_256 || mtu > IBV_MTU_4096) return broken("MTU", mtu);
  endpoint.mtu = static_cast<ibv_mtu>(mtu);
  if (endpoint.queue_pair_number > kLargest24Bits) {
    return broken("QP number", endpoint.queue_pair_number);
  }
  if (endpoint.packet_sequence_number > kLargest24Bits) {
    return broken("PSN", endpoint.packet_sequence_number);
  }
  if (endpoint.link_layer == IBV_LINK_LAYER_INFINIBAND && endpoint.lid == 0) {
    return broken("LID", endpoint.lid);
  }
  const auto& gid = endpoint.gid.raw;
  if (endpoint.link_layer == IBV_LINK_LAYER_ETHERNET &&
      std::all_of(std::begin(gid), std::end(gid), [](uint8_t byte) { return byte == 0; })) {
    return broken("GID", 0);
  }
  return endpoint;
}

Status check_reachable(const Endpoint& local, const Endpoint& remote) {
  if (local.link_layer == remote.link_layer) return ok_status();
  return error(Code::kUnsupported, "we are on {} and the peer is on {}",
               link_layer_name(local.link_layer), link_layer_name(remote.link_layer));
}

}  // namespace be::hardware
