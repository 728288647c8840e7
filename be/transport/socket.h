// Socket: one logical, message-oriented connection; many share one engine (paper 4, 6.1).
//
// Owned by one IoThread and used on its thread only; other threads go through
// IoThread::post. The same interface over RDMA (hardware, softnic, sim) and kernel TCP.
#pragma once

#include <cstdint>
#include <string_view>

#include "be/base/status.h"
#include "be/base/stream_network.h"
#include "be/memory/buffer.h"

namespace be {

class IoThread;
class Socket;

enum class TransportKind : uint8_t { kTcp = 0, kHardware = 1, kSoftnic = 2, kSimulated = 3 };
std::string_view transport_name(TransportKind kind);

// What the configuration or the caller asks for (`transport`: auto|rdma|softnic|tcp).
enum class TransportChoice : uint8_t { kAuto, kRdma, kSoftnic, kTcp };

// Implemented by the user of a socket. All calls come on the socket's I/O thread. After
// on_closed, the socket is gone. May call send and close from within.
class SocketHandler {
 public:
  // connect() succeeded. Not called for accepted sockets: they are open from the start.
  virtual void on_open(Socket& socket) = 0;
  virtual void on_message(Socket& socket, Buffer message) = 0;
  virtual void on_sent(Socket& socket, uint64_t cookie, const Status& status) = 0;
  // Exactly once per socket, the last call: connect failed (never opened: `socket` only names
  // the remote), one end closed it (kClosed), or the connection broke (named error).
  virtual void on_closed(Socket& socket, const Status& status) = 0;

 protected:
  ~SocketHandler() = default;
};

class Socket {
 public:
  virtual ~Socket() = default;

  // Takes the message; on a refusal leaves it with the caller: kResourceExhausted (queue full:
  // try again after an on_sent), kClosed, kInvalidArgument (too large: max_message_bytes).
  // on_sent(cookie) follows exactly once, unless cookie is 0.
  virtual Status send(Message& message, uint64_t cookie) = 0;

  // Graceful: what was sent before is delivered first. on_closed follows, with kClosed.
  virtual void close() = 0;

  virtual TransportKind transport() const = 0;
  virtual std::string_view device_name() const { return {}; }  // "mlx5_0"; empty: no device
  virtual const Address& remote() const = 0;
  virtual IoThread& thread() const = 0;
  virtual size_t max_message_bytes() const = 0;
};

}  // namespace be
