// What the transport's tests share: nodes driven by the test's own thread, handlers that write
// down what they are told, and a peer that speaks raw TCP.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "be/base/world.h"
#include "be/transport/node.h"

namespace be::test {

inline constexpr Nanoseconds kPatience = 10s;  // a test that waits so long has failed

NodeOptions driven_options(TransportChoice transport = TransportChoice::kTcp);
// The receives of its engines are those of one SRQ, with room for `engines` and little to spare.
NodeOptions with_shared_receives(NodeOptions options, uint32_t engines);
std::unique_ptr<Node> make_node(const NodeOptions& options);
Address any_loopback_port();

// Drives all nodes by turns until `done` or the patience is at its end.
bool drive(const std::vector<Node*>& nodes, const std::function<bool()>& done,
           Nanoseconds patience = kPatience);

// Destroys `node` while `others` go on: over softnic the memory of an engine is free only when
// the peer has confirmed that it lets go of it.
void destroy(std::unique_ptr<Node>& node, const std::vector<Node*>& others);

size_t open_descriptors();

// `size` bytes that `seed` determines.
Buffer patterned(Node& node, size_t size, uint32_t seed);
bool has_pattern(const Buffer& buffer, size_t size, uint32_t seed);
Buffer text_buffer(Node& node, const std::string& text);
std::string text_of(const Buffer& buffer);
Status send_text(Socket& socket, Node& node, const std::string& text, uint64_t cookie = 0);

// Writes down everything; what it does besides is settable.
class Recorder final : public SocketHandler {
 public:
  virtual ~Recorder() = default;
  void on_open(Socket& opened) override;
  void on_message(Socket& socket, Buffer message) override;
  void on_sent(Socket& socket, uint64_t cookie, const Status& status) override;
  void on_closed(Socket& socket, const Status& status) override;

  Socket* socket = nullptr;  // while open
  int opened = 0;
  int closed = 0;
  Status close_status;
  std::vector<Buffer> messages;
  std::vector<std::pair<uint64_t, Status>> sent;

  std::function<void(Socket&)> when_open;
  std::function<void(Socket&, Buffer)> when_message;  // instead of keeping it
  std::function<void(Socket&, uint64_t, const Status&)> when_sent;
};

// Listens and accepts every socket with a Recorder of its own.
class Host {
 public:
  explicit Host(Node& node);

  const Address& address() const { return listener->address(); }
  Recorder& accepted(size_t index) { return *handlers.at(index); }

  std::function<void(Socket&, Recorder&)> when_accepted;
  std::vector<std::unique_ptr<Recorder>> handlers;
  std::unique_ptr<Listener> listener;
};

void echo(Recorder& handler);  // sends every message back

// A peer outside the library: blocking writes, and reads that wait for kPatience at most.
class RawPeer {
 public:
  explicit RawPeer(const Address& server);
  ~RawPeer();
  void write(const std::vector<uint8_t>& bytes);
  bool readable_or_ended();          // without waiting
  std::vector<uint8_t> read_some();  // empty: the connection has ended
  void end_writing();

 private:
  int fd_;
};

}  // namespace be::test
