// Channel: the client's end towards one server address (the paper's Archon, section 7).
//
// Thread-safe. A call made on the channel's I/O thread goes out directly; from any other
// thread it is posted there. The callback runs on the I/O thread: be short, or hand over.
//
// A caller gets exactly one answer or one error, before its deadline plus a bounded slack. Two
// times are apart: connecting (connect_timeout) and answering (the call's timeout, which is
// counted from call()). Calls made while connecting wait for it. After a failed connection every
// waiting call ends with kUnavailable naming the address and cause; the next call connects again.
//
// Ending a call ends the call only: its request buffers return when the transport no longer
// needs them (blueprint 3). A response that comes after the end is dropped and counted.
//
// In a forked child (base/fork.h) it is dead: a call ends with kClosed, from within call(), for
// nobody else is there; calls that were outstanding end in the parent only.
//
// Small and bulk calls use separate sockets of the same engine: a message of more than
// `bulk_bytes` goes to the bulk socket, so it never delays small ones.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "be/rpc/message.h"
#include "be/transport/node.h"

namespace be::rpc {

struct ChannelOptions {
  Nanoseconds connect_timeout = 500ms;
  Nanoseconds request_timeout = 1s;
  size_t bulk_bytes = 64 << 10;
  std::optional<TransportChoice> transport = std::nullopt;  // default: the node's
  uint32_t max_outstanding = 65536;  // more calls fail at once with kResourceExhausted
};

using CallId = uint64_t;

class Channel {
 public:
  // Does not connect yet. `node` must outlive the channel.
  static std::unique_ptr<Channel> create(Node& node, const Address& server,
                                         const ChannelOptions& options);
  virtual ~Channel() = default;  // outstanding calls end with kCancelled before it returns

  // Takes the request. The callback is called exactly once, never from within call(). The id,
  // for cancel(), is also stored in `early_id`, before the callback can run on another thread.
  // Id 0: refused (max_outstanding), the callback will say so.
  virtual CallId call(MethodId method, Payload request, const CallOptions& options,
                      ResponseCallback callback, std::atomic<CallId>* early_id = nullptr) = 0;

  // The call ends with kCancelled, unless it has ended already; the server is told.
  virtual void cancel(CallId call) = 0;

  // Blocking form, for a driven node's owner thread (drives it) or for any thread that is not
  // an I/O thread (waits). Never call it on a started I/O thread.
  virtual Result<Payload> call_and_wait(MethodId method, Payload request,
                                        const CallOptions& options,
                                        std::atomic<CallId>* early_id = nullptr) = 0;

  virtual const Address& server() const = 0;
  virtual Node& node() = 0;
  // The transport of the established connection; nothing while not connected.
  virtual std::optional<TransportKind> transport() const = 0;
  virtual uint64_t late_responses() const = 0;  // came after the end of their call
};

}  // namespace be::rpc
