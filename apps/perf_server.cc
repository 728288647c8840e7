#include "apps/perf_server.h"

#include <fmt/format.h>

#include <utility>

#include "apps/device_label.h"
#include "apps/host_name.h"
#include "apps/touch.h"

namespace be::apps {
struct PerfService::Session {
  // Of one data socket; written by its I/O thread only.
  struct Counts {
    std::atomic<uint64_t> messages = 0;
    std::atomic<uint64_t> bytes = 0;

    void add(uint64_t size) {
      messages.store(messages.load(std::memory_order_relaxed) + 1, std::memory_order_release);
      bytes.store(bytes.load(std::memory_order_relaxed) + size, std::memory_order_release);
    }
  };
  static constexpr size_t kMaxDataSockets = 4096;  // in the life of a session

  Result<Counts*> add_socket() {
    const std::lock_guard lock(mutex);
    if (counts.size() == kMaxDataSockets) {
      return error(Code::kResourceExhausted, "a session has {} data sockets", kMaxDataSockets);
    }
    return &counts.emplace_back();
  }
  void add_up(uint64_t& messages, uint64_t& bytes) const {
    const std::lock_guard lock(mutex);
    for (const Counts& socket : counts) {
      messages += socket.messages.load(std::memory_order_acquire);
      bytes += socket.bytes.load(std::memory_order_acquire);
    }
  }

  mutable std::mutex mutex;
  std::deque<Counts> counts;
};

// One accepted socket.
class PerfService::Peer final : public SocketHandler {
 public:
  explicit Peer(PerfService& service) : service_(service) {}
  virtual ~Peer() = default;

  void on_open(Socket&) override {}
  void on_sent(Socket&, uint64_t, const Status&) override {}
  void on_closed(Socket&, const Status& status) override { service_.ended(this, status); }

  void on_message(Socket& socket, Buffer message) override {
    switch (state_) {
      case State::kData:
        return check(socket, answer(socket, message));
      case State::kControl:
        return check(socket, control(socket, message));
      case State::kGreeting:
        return greet(socket, message);
      case State::kEnding:
        return;
    }
  }

 private:
  friend class PerfService;
  enum class State : uint8_t { kGreeting, kData, kControl, kEnding };

  void check(Socket& socket, const Status& status) {
    if (status.ok()) return;
    service_.callbacks_.say(status.with_context(socket.remote().to_string()).to_string());
    state_ = State::kEnding;
    socket.close();
  }

  void greet(Socket& socket, const Buffer& message) {
    const Status status = take_greeting(socket, message);
    const Status sent = send_frame(service_.node_.pool(), socket, encode_welcome(status));
    check(socket, status.ok() ? sent : status);
  }

  Status take_greeting(Socket& socket, const Buffer& message) {
    BE_ASSIGN_OR_RETURN(greeting_, decode_greeting(message.bytes()));
    BE_ASSIGN_OR_RETURN(session_, service_.join(greeting_, socket));
    if (greeting_.role == PerfGreeting::Role::kControl) {
      state_ = State::kControl;
      return {};
    }
    BE_ASSIGN_OR_RETURN(counts_, session_->add_socket());
    state_ = State::kData;
    return {};
  }

  Status control(Socket& socket, const Buffer& message) {
    BE_RETURN_IF_ERROR(decode_report_request(message.bytes()));
    return send_frame(service_.node_.pool(), socket,
                      encode_report(service_.report(*session_, socket)));
  }

  // Small replies ride in the message's header, as those of an application would: no allocation.
  Status answer(Socket& socket, Buffer& message) {
    counts_->add(message.size());
    if (greeting_.touch) sum_ += read_all(message.data(), message.size());
    message.reset();
    const size_t bytes = greeting_.reply_bytes;
    Message reply;
    if (bytes <= Message::kMaxHeaderBytes) {
      reply.header_bytes = static_cast<uint8_t>(bytes);
      if (greeting_.touch) rewrite(reply.header, bytes, static_cast<uint8_t>(sum_));
    } else {
      BE_ASSIGN_OR_RETURN(Buffer buffer, service_.node_.pool().allocate_buffer(bytes));
      if (greeting_.touch) rewrite(buffer.data(), bytes, static_cast<uint8_t>(sum_));
      reply.append(std::move(buffer));
    }
    return socket.send(reply, 0);
  }

  PerfService& service_;
  State state_ = State::kGreeting;
  PerfGreeting greeting_;
  std::shared_ptr<Session> session_;
  Session::Counts* counts_ = nullptr;  // of session_
  uint64_t sum_ = 0;
};

PerfService::PerfService(Node& node, Callbacks callbacks)
    : node_(node), callbacks_(std::move(callbacks)) {}
PerfService::~PerfService() = default;

SocketHandler* PerfService::accept(Socket&) {
  const std::lock_guard lock(mutex_);
  if (peers_.size() == kMaxSockets) return nullptr;
  auto peer = std::make_unique<Peer>(*this);
  Peer* const raw = peer.get();
  peers_.emplace(raw, std::move(peer));
  return raw;
}

Result<std::shared_ptr<PerfService::Session>> PerfService::join(const PerfGreeting& greeting,
                                                                const Socket& socket) {
  const std::lock_guard lock(mutex_);
  const auto found = sessions_.find(greeting.session);
  if (greeting.role == PerfGreeting::Role::kData) {
    if (found != sessions_.end()) return found->second;
    return error(Code::kNotFound, "no session {:016x}", greeting.session);
  }
  if (found != sessions_.end()) {
    return error(Code::kAlreadyExists, "session {:016x} has a control socket", greeting.session);
  }
  if (sessions_.size() == kMaxSessions) {
    return error(Code::kResourceExhausted, "{} clients are being served", kMaxSessions);
  }
  callbacks_.say(fmt::format("{}: {} over {}", socket.remote().to_string(),
                             perf_test_name(greeting.test),
                             device_label(socket.transport(), socket.device_name())));
  return sessions_.emplace(greeting.session, std::make_shared<Session>()).first->second;
}

void PerfService::ended(Peer* peer, const Status&) {
  std::shared_ptr<Session> session;
  {
    const std::lock_guard lock(mutex_);
    if (peer->greeting_.role == PerfGreeting::Role::kControl && peer->session_ != nullptr) {
      session = std::move(peer->session_);
      sessions_.erase(peer->greeting_.session);
    }
    peers_.erase(peer);
  }
  if (session == nullptr) return;
  uint64_t messages = 0;
  uint64_t bytes = 0;
  session->add_up(messages, bytes);
  callbacks_.say(fmt::format("done: {} messages, {} bytes", messages, bytes));
  callbacks_.session_ended();
}

PerfReport PerfService::report(const Session& session, const Socket& socket) {
  PerfReport report;
  report.cpu = this_process_cpu_time();
  session.add_up(report.messages, report.bytes);
  const PoolStats pool = node_.pool().stats();
  report.live_allocations = pool.allocations;
  report.registered_bytes = pool.registered_bytes;
  report.peak_registered_bytes = pool.peak_registered_bytes;
  report.registrations = pool.registrations;
  {
    const std::lock_guard lock(mutex_);
    report.sessions = static_cast<uint32_t>(sessions_.size());
  }
  report.io_threads = static_cast<uint32_t>(node_.thread_count());
  report.transport = socket.transport();
  report.device = device_label(socket.transport(), socket.device_name());
  report.host = host_name();
  return report;
}

}  // namespace be::apps
