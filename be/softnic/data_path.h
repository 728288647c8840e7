// The data path of softnic, as free functions over queue pairs and completion queues.
//
//   post.cc            ibv_post_send, ibv_post_recv, ibv_post_srq_recv; executing of sends
//   take_message.cc    one message from a ring into a receive; acknowledgements, both ways
//   poll_cq.cc         ibv_poll_cq, ibv_req_notify_cq: whose turn it is
//
// All on the I/O thread of the QP. Nothing here allocates in the steady state, makes a system
// call unless somebody sleeps, or fails other than by completions and the errno of the verb.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

#include "be/softnic/completion_queue.h"
#include "be/softnic/queue_pair.h"

namespace be::softnic {

int post_send(ibv_qp* qp, ibv_send_wr* request, ibv_send_wr** bad);
int post_recv(ibv_qp* qp, ibv_recv_wr* request, ibv_recv_wr** bad);
int post_srq_recv(ibv_srq* srq, ibv_recv_wr* request, ibv_recv_wr** bad);
int poll_cq(ibv_cq* cq, int count, ibv_wc* completions);
int req_notify_cq(ibv_cq* cq, int solicited_only);

// Whether an armed CQ has something to tell; if so, it is armed no more. Else it is armed anew:
// what its peers have woken us for may have been polled meanwhile, and they do it once an arming.
bool take_wake_up(CompletionQueue& cq);

// The next QP in turn executes one large WRITE and the small work behind it, if it is paced only
// what has left the link. Requires !cq.deferred.empty().
void execute_deferred(CompletionQueue& cq);
// Whether that would do something now. Else the channel's timer is set for when it will.
bool deferred_is_due(CompletionQueue& cq);

enum class Taken : uint8_t {
  kMessage,
  kNothing,
  kBlocked,  // a message is there, but no receive
  kFailed,   // the QP is in ERR now
};
Taken take_message(QueuePair& qp);        // requires qp.live()
bool message_waits(const QueuePair& qp);  // in the ring, whether or not there is a receive

// Reads what the peer has acknowledged. False: that was nonsense, and the QP is in ERR.
bool take_acknowledgements(QueuePair& qp);

// Tells peers what was matched. Polls, arming and take_events do it first of all, and messages
// of our own carry it: so a request and its reply cost one crossing each, while a user who
// neither polls nor arms any more leaves the last sender without its completion.
void publish_acknowledgements(CompletionQueue& cq);

void deliver_remaining(QueuePair& qp);  // messages and acknowledgements that are here already

}  // namespace be::softnic
