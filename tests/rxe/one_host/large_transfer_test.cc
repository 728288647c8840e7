// 32 MB to a process over rxe, while 100 B calls to it go on. How fast this machine is nobody
// knows, so the bound is a share of the time that the transfer itself takes:
//
//   P99 of the calls <= a quarter of it      behind a send queue of 32 fragments of 8 KiB: 1/128
//
// Fragments of 4 MiB break it: all eight are posted at once, a call stands behind all that is left.
#include "tests/common/large_transfer.h"

namespace be::cluster {
namespace {

constexpr size_t kTransferBytes = size_t{32} << 20;

NodeOptions transfer_options() {
  NodeOptions made;
  made.transport = TransportChoice::kRdma;
  made.memory.cap_bytes = size_t{128} << 20;
  made.engine.keepalive_timeout = 30s;
  made.hardware.ack_timeout = 250ms;
  made.handshake_timeout = 30s;
  return made;
}

TEST_F(LargeTransfer, SmallCallsWaitForASmallPartOfItOnly) {
  const Figures figures = transfer(transfer_options(), kTransferBytes);
  EXPECT_GE(figures.calls, 10u);
  EXPECT_LE(figures.raw_p99, figures.took / 4);
}

TEST_F(LargeTransfer, WithoutFragmentsTheyWaitForMostOfIt) {
  NodeOptions whole = transfer_options();
  whole.engine.fragment_bytes = 4 << 20;
  const Figures figures = transfer(whole, kTransferBytes);
  EXPECT_GT(figures.raw_p99, figures.took / 4);
}

}  // namespace
}  // namespace be::cluster
