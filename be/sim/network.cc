#include "be/sim/network.h"

#include <cerrno>
#include <utility>

#include "be/sim/host.h"

namespace be::sim {

Stream* VirtualNetwork::stream(int fd) const { return dynamic_cast<Stream*>(host_.find(fd)); }

Result<int> VirtualNetwork::listen(const Address& address) {
  if (host_.state() == Host::State::kWalled) return error_from_errno(ENETDOWN, "listen");
  Address bound = address;
  if (bound.port == 0) bound.port = next_port_++;
  if (!internet_.listeners[bound].expired()) return error_from_errno(EADDRINUSE, "listen");
  auto listener = std::make_shared<StreamListener>(bound);
  listener->registry = &internet_.listeners;
  internet_.listeners[bound] = listener;
  return host_.open(std::move(listener));
}

Result<int> VirtualNetwork::accept(int fd) {
  auto* listener = dynamic_cast<StreamListener*>(host_.find(fd));
  if (listener == nullptr) return error_from_errno(EBADF, "accept");
  if (listener->waiting.empty()) return -1;
  std::shared_ptr<Stream> stream = std::move(listener->waiting.front());
  listener->waiting.pop_front();
  return host_.open(std::move(stream));
}

Result<int> VirtualNetwork::connect(const Address& address) {
  Simulation& simulation = host_.simulation();
  const Address local = host_.address(next_port_++);
  auto stream = std::make_shared<Stream>(simulation, internet_.latency, local, address);
  const int fd = host_.open(stream);
  if (host_.state() == Host::State::kWalled) {
    stream->refuse();
    return fd;
  }
  simulation.after(internet_.latency, [this, stream, address] {
    Simulation& now = host_.simulation();
    const auto found = internet_.listeners.find(address);
    const auto listener = found == internet_.listeners.end() ? nullptr : found->second.lock();
    if (listener == nullptr || host_.state() == Host::State::kDead) {
      now.after(internet_.latency, [stream] { stream->refuse(); });
      return;
    }
    auto far = std::make_shared<Stream>(now, internet_.latency, address, stream->local());
    far->join(stream);
    stream->join(far);
    far->connected();
    listener->waiting.push_back(far);
    listener->changed();
    now.after(internet_.latency, [stream] { stream->connected(); });
  });
  return fd;
}

Status VirtualNetwork::connect_result(int fd) {
  const Stream* end = stream(fd);
  if (end == nullptr) return error_from_errno(EBADF, "connect");
  if (end->refused()) {
    return error_from_errno(ECONNREFUSED, "connect to " + end->remote().to_string());
  }
  if (!end->is_connected()) return error_from_errno(EINPROGRESS, "connect");
  return {};
}

IoResult VirtualNetwork::read(int fd, const iovec* iov, int count) {
  Stream* end = stream(fd);
  if (end == nullptr) return {IoResult::Kind::kError, EBADF, 0};
  const IoResult result = end->read(iov, count, host_.random());
  if (result.bytes > 0) {
    host_.simulation().note(Happening::kStream, host_.index(), result.bytes, 2);
  }
  return result;
}

IoResult VirtualNetwork::write(int fd, const iovec* iov, int count) {
  Stream* end = stream(fd);
  if (end == nullptr) return {IoResult::Kind::kError, EBADF, 0};
  const IoResult result = end->write(iov, count, host_.random());
  if (result.bytes > 0) {
    host_.simulation().note(Happening::kStream, host_.index(), result.bytes, 1);
  }
  return result;
}

void VirtualNetwork::shutdown_write(int fd) {
  if (Stream* end = stream(fd)) end->shutdown_write();
}

void VirtualNetwork::close(int fd) { host_.close(fd); }

Result<Address> VirtualNetwork::local_address(int fd) {
  if (const Stream* end = stream(fd)) return end->local();
  if (const auto* listener = dynamic_cast<StreamListener*>(host_.find(fd))) {
    return listener->address();
  }
  return error_from_errno(EBADF, "getsockname");
}

Result<Address> VirtualNetwork::remote_address(int fd) {
  const Stream* end = stream(fd);
  if (end == nullptr) return error_from_errno(EBADF, "getpeername");
  return end->remote();
}

}  // namespace be::sim
