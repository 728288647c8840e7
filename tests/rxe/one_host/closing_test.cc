// Closing over rxe with a stopped peer, with messages queued, with events unread. A stopped process
// has a NIC that goes on: it acknowledges until its receives are used up.
#include "tests/common/closing.h"

namespace be::cluster {
namespace {

NodeOptions closing_options() {
  NodeOptions made;
  made.transport = TransportChoice::kRdma;
  made.memory.cap_bytes = size_t{64} << 20;
  made.engine.keepalive_interval = 500ms;
  made.engine.keepalive_timeout = 3s;
  made.hardware.ack_timeout = 250ms;
  made.handshake_timeout = 30s;
  return made;
}

TEST_F(ClosingCases, ANodeGoesWhileItsPeerIsStoppedAndMessagesAreQueued) {
  node_goes_while_peer_is_stopped(closing_options());
}

TEST_F(ClosingCases, SocketsCloseWhileTheirPeerIsStoppedAndMessagesAreQueued) {
  sockets_close_while_peer_is_stopped(closing_options(), 3s + 500ms + 5s);
}

TEST_F(ClosingCases, ANodeGoesWithEventsUnread) { node_goes_with_events_unread(closing_options()); }

}  // namespace
}  // namespace be::cluster
