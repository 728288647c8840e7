// Endpoint blobs, as a peer sends them in its offer: softnic's and the hardware device's.
#include "be/softnic/rendezvous.h"
#include "be/verbs/hardware/endpoint.h"
#include "tests/common/must_hold.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace be;
  if (size > kMaxEndpointBytes) return 0;  // decode_engine_offer has bounded it
  const EndpointBlob blob(data, data + size);
  if (const auto softnic = softnic::decode_endpoint(blob); softnic.ok()) {
    // What follows a zero in the boot id is no part of it.
    const EndpointBlob written = softnic::encode_endpoint(*softnic);
    const auto again = softnic::decode_endpoint(written);
    MUST_HOLD(again.ok());
    MUST_HOLD(softnic::encode_endpoint(*again) == written);
    MUST_HOLD(again->socket_name == softnic->socket_name);
    MUST_HOLD(again->qp_number == softnic->qp_number && again->send_depth == softnic->send_depth);
  }
  if (const auto hardware = hardware::decode(blob); hardware.ok()) {
    MUST_HOLD(hardware->queue_pair_number < 1u << 24);
    MUST_HOLD(hardware::mtu_bytes(hardware->mtu) >= 256 &&
              hardware::mtu_bytes(hardware->mtu) <= 4096);
    EndpointBlob written = hardware::encode(*hardware);
    written[4] = blob[4];  // padding
    MUST_HOLD(written == blob);
  }
  return 0;
}
