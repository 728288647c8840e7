// Closing over softnic with a stopped peer, with messages queued, with events unread; over TCP
// where it bounds the time at all (a stopped peer's TCP socket has no keepalive of ours).
#include "tests/common/closing.h"

namespace be::cluster {
namespace {

NodeOptions options(TransportChoice transport) {
  NodeOptions made;
  made.transport = transport;
  made.memory.cap_bytes = size_t{64} << 20;
  made.engine.keepalive_interval = 100ms;
  made.engine.keepalive_timeout = 500ms;
  return made;
}

class ClosingOver : public ClosingCases, public ::testing::WithParamInterface<TransportChoice> {};

TEST_P(ClosingOver, ANodeGoesWhileItsPeerIsStoppedAndMessagesAreQueued) {
  node_goes_while_peer_is_stopped(options(GetParam()));
}

TEST_P(ClosingOver, ANodeGoesWithEventsUnread) {
  node_goes_with_events_unread(options(GetParam()));
}

INSTANTIATE_TEST_SUITE_P(Closing, ClosingOver,
                         ::testing::Values(TransportChoice::kSoftnic, TransportChoice::kTcp));

// The timeout of the keepalive, a tick that comes late, a busy machine.
TEST_F(ClosingCases, SocketsCloseWhileTheirPeerIsStoppedAndMessagesAreQueued) {
  sockets_close_while_peer_is_stopped(options(TransportChoice::kSoftnic), 500ms + 100ms + 3s);
}

}  // namespace
}  // namespace be::cluster
