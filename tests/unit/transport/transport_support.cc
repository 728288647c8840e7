#include "transport_support.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "be/base/hash.h"

namespace be::test {

NodeOptions driven_options(TransportChoice transport) {
  NodeOptions options;
  options.transport = transport;
  options.driven = true;
  options.memory.cap_bytes = size_t{256} << 20;
  return options;
}

NodeOptions with_shared_receives(NodeOptions options, uint32_t engines) {
  EngineOptions& engine = options.engine;
  engine.shared_receives = 1;  // so that the least of an engine is known
  const uint32_t least = reserved_receives(engine) + initial_credits(engine);
  engine.shared_receives = engines * least + engine.recv_queue_depth / 2;
  return options;
}

std::unique_ptr<Node> make_node(const NodeOptions& options) {
  auto node = Node::create(kernel_world(), options);
  if (!node.ok()) {
    ADD_FAILURE() << node.status().to_string();
    std::abort();
  }
  return *std::move(node);
}

Address any_loopback_port() { return *Address::parse("127.0.0.1:0"); }

bool drive(const std::vector<Node*>& nodes, const std::function<bool()>& done,
           Nanoseconds patience) {
  const Time deadline = kernel_world().now() + patience;
  for (;;) {
    if (done()) return true;
    for (Node* node : nodes) node->thread(0).poll();
    if (kernel_world().now() >= deadline) return done();
  }
}

void destroy(std::unique_ptr<Node>& node, const std::vector<Node*>& others) {
  std::atomic<bool> gone = false;
  std::thread destroyer([&] {
    node.reset();
    gone = true;
  });
  EXPECT_TRUE(drive(others, [&] { return gone.load(); }));
  destroyer.join();
}

size_t open_descriptors() {
  size_t count = 0;
  DIR* directory = opendir("/proc/self/fd");
  while (readdir(directory) != nullptr) ++count;
  closedir(directory);
  return count;
}

namespace {

uint8_t pattern_byte(uint32_t seed, size_t index) {
  return static_cast<uint8_t>(mix64(seed, index / 8) >> (index % 8 * 8));
}

}  // namespace

Buffer patterned(Node& node, size_t size, uint32_t seed) {
  Result<Buffer> buffer = node.pool().allocate_buffer(size);
  EXPECT_TRUE(buffer.ok()) << buffer.status().to_string();
  for (size_t i = 0; i < size; ++i) buffer->data()[i] = pattern_byte(seed, i);
  return *std::move(buffer);
}

bool has_pattern(const Buffer& buffer, size_t size, uint32_t seed) {
  if (buffer.size() != size) return false;
  for (size_t i = 0; i < size; ++i) {
    if (buffer.data()[i] != pattern_byte(seed, i)) return false;
  }
  return true;
}

Buffer text_buffer(Node& node, const std::string& text) {
  Buffer buffer = *node.pool().allocate_buffer(text.size());
  std::memcpy(buffer.data(), text.data(), text.size());
  return buffer;
}

std::string text_of(const Buffer& buffer) {
  return {reinterpret_cast<const char*>(buffer.data()), buffer.size()};
}

Status send_text(Socket& socket, Node& node, const std::string& text, uint64_t cookie) {
  Message message(text_buffer(node, text));
  return socket.send(message, cookie);
}

void Recorder::on_open(Socket& opened_socket) {
  ++opened;
  socket = &opened_socket;
  if (when_open) when_open(opened_socket);
}

void Recorder::on_message(Socket& from, Buffer message) {
  if (when_message) {
    when_message(from, std::move(message));
  } else {
    messages.push_back(std::move(message));
  }
}

void Recorder::on_sent(Socket& from, uint64_t cookie, const Status& status) {
  sent.emplace_back(cookie, status);
  if (when_sent) when_sent(from, cookie, status);
}

void Recorder::on_closed(Socket&, const Status& status) {
  ++closed;
  socket = nullptr;
  close_status = status;
}

Host::Host(Node& node) {
  auto result = node.listen(any_loopback_port(), [this](Socket& socket) -> SocketHandler* {
    handlers.push_back(std::make_unique<Recorder>());
    handlers.back()->socket = &socket;
    if (when_accepted) when_accepted(socket, *handlers.back());
    return handlers.back().get();
  });
  EXPECT_TRUE(result.ok()) << result.status().to_string();
  listener = *std::move(result);
}

void echo(Recorder& handler) {
  handler.when_message = [](Socket& socket, Buffer buffer) {
    Message message(std::move(buffer));
    EXPECT_TRUE(socket.send(message, 0).ok());
  };
}

RawPeer::RawPeer(const Address& server) : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(server.port);
  std::memcpy(&to.sin_addr, server.ip + 12, 4);
  EXPECT_EQ(::connect(fd_, reinterpret_cast<sockaddr*>(&to), sizeof(to)), 0);
}

RawPeer::~RawPeer() { ::close(fd_); }

void RawPeer::write(const std::vector<uint8_t>& bytes) {
  // The other end may have hung up already.
  [[maybe_unused]] const ssize_t written = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
}

bool RawPeer::readable_or_ended() {
  pollfd wanted{.fd = fd_, .events = POLLIN, .revents = 0};
  return ::poll(&wanted, 1, 0) == 1;
}

std::vector<uint8_t> RawPeer::read_some() {
  std::vector<uint8_t> bytes(4096);
  const ssize_t got = ::recv(fd_, bytes.data(), bytes.size(), 0);
  bytes.resize(got > 0 ? static_cast<size_t>(got) : 0);
  return bytes;
}

void RawPeer::end_writing() { ::shutdown(fd_, SHUT_WR); }

}  // namespace be::test
