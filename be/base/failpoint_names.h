// All failpoints of the project, by name: what a test enumerates (failpoint.h).
//
//   layer . what is being done . the step that has just been done ("middle": half of a copy)
//
// In the order in which a connection meets them. Where two ends do the same, both meet it.
#pragma once

#include <cstddef>
#include <string_view>

namespace be::failpoint {

inline constexpr std::string_view kNames[] = {
    // Handshake over TCP, the connecting end.
    "transport.connector.connecting",
    "transport.connector.connected",
    "transport.connector.hello_sent",
    "transport.connector.hello_received",
    "transport.connector.link_created",
    "transport.connector.offer_sent",
    "transport.connector.answer_received",
    "transport.connector.linking",
    "transport.connector.linked",
    "transport.connector.ready_sent",
    "transport.connector.ready_received",
    "transport.connector.established",
    "transport.connector.open_socket_sent",
    // Handshake over TCP, the answering end.
    "transport.server.accepted",
    "transport.server.hello_received",
    "transport.server.hello_sent",
    "transport.server.offer_received",
    "transport.server.link_created",
    "transport.server.linking",
    "transport.server.answer_sent",
    "transport.server.ready_received",
    "transport.server.linked",
    "transport.server.ready_sent",
    "transport.server.established",
    "transport.server.socket_accepted",
    // Rendezvous of two softnic queue pairs.
    "softnic.connect.ring_allocated",
    "softnic.connect.socket_connected",
    "softnic.connect.hello_sent",
    "softnic.accept.visitor_accepted",
    "softnic.accept.hello_received",
    "softnic.attach.control_mapped",
    "softnic.attach.data_mapped",
    "softnic.attach.path_made",
    "softnic.accept.attached",
    "softnic.accept.accept_sent",
    "softnic.connect.accept_received",
    "softnic.connect.opened",
    // Posting.
    "softnic.post.admitted",
    "softnic.post.staged",
    "softnic.post.slot_filled",
    "softnic.post.published",
    "softnic.post.marked",
    "softnic.write.middle",
    "softnic.write.copied",
    "softnic.write.resumed",
    // Receiving.
    "softnic.take.header_copied",
    "softnic.fetch.middle",
    "softnic.take.copied",
    "softnic.take.completed",
    // Acknowledging.
    "softnic.acknowledge.stored",
    "softnic.acknowledge.marked",
    "softnic.acknowledge.taken",
    // Sleeping and waking.
    "softnic.arm.set",
    "softnic.wake.decided",
    // The end of a queue pair.
    "softnic.reset.failed",
    "softnic.reset.sent",
    "softnic.reset.received",
    "softnic.retire.left",
    "softnic.retire.quiet",
    "softnic.retire.ring_freed",
};

inline constexpr size_t kCount = sizeof(kNames) / sizeof(kNames[0]);

// The place of `name` in the list; kCount: there is none.
constexpr size_t index_of(std::string_view name) {
  size_t index = 0;
  while (index < kCount && kNames[index] != name) ++index;
  return index;
}

}  // namespace be::failpoint
