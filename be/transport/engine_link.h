// EngineLink: one engine to one peer with all that hangs on it: its sockets, its place in a
// DevicePort, and the TCP connection beside it that tells of the peer's end at once.
//
//   kSettingUp --establish--> kUsable --failure, shut down--> kEnding --engine dead--> disposed
//        |'-------------------abandon------------------------>'
//        '--failure before connect()--> kBroken --connect() tells of it; abandon--> kEnding
//
// Sockets share the engine in band: their frames carry a socket id, chosen by the connector,
// odd (blueprint 7). An id is used again only after both ends have sent SocketClose: in each
// direction it is the socket's last frame.
//
//   connector                                listener
//   SocketOpen           ->
//                        <-                  SocketAccept | SocketRefuse (status)
//   messages            <->                  messages
//   SocketClose          ->  and  <-         SocketClose     in any order
//
// The listener never opens sockets: two processes that connect to each other have two engines.
// Used on its I/O thread only.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "be/engine/engine.h"
#include "be/transport/acceptance.h"
#include "be/transport/device_port.h"
#include "be/transport/engine_offer.h"
#include "be/transport/engine_socket.h"
#include "be/transport/io_thread_impl.h"
#include "be/transport/stream_fd.h"
#include "be/transport/transport_context.h"

namespace be {

class EngineLink final : public Resident, private EngineUser, private PollHandler {
 public:
  enum class Side : uint8_t { kConnector, kListener };

  // Adopted by the thread; nothing is left behind on failure.
  static Result<EngineLink*> create(const TransportContext& context, IoThreadImpl& thread,
                                    NodeDevice device, const Address& remote, Side side);
  ~EngineLink() override;

  // --- Set-up, by the handshake ---
  Result<EngineOffer> offer() const;  // our end; without token
  // `report` is called later: with ok when it is connected, with a failure as soon as there is
  // one; not any more after abandon() or establish().
  Status connect(const EngineOffer& remote, const ConnectToken& token,
                 std::function<void(const Status&)> report);
  void abandon(const Status& why);  // given up before it was established
  // Both ends are connected. `beside`: the handshake's connection. `ended` is called once, when
  // no more sockets can be opened.
  void establish(StreamFd beside, std::shared_ptr<Acceptance> acceptance,
                 UniqueFunction<void()> ended);

  // --- In use ---
  void open_socket(SocketHandler* handler, Time deadline);
  DeviceKind kind() const { return port_.device().device->kind(); }
  const std::string& device_name() const { return port_.device().device->name(); }
  size_t device_index() const { return port_.device().index; }
  const Address& remote() const { return remote_; }
  bool heard() const { return engine_->stats().messages_received > 0; }  // anything from the peer
  uint32_t max_message_bytes() const { return peer_max_message_bytes_; }
  IoThreadImpl& thread() const { return thread_; }

  // --- By EngineSocket ---
  Status send(SocketId socket, FrameKind kind, Message& message, uint64_t cookie);
  void stop_traffic(SocketId socket, const Status& why) { engine_->close_socket(socket, why); }
  void release_socket(SocketId socket);

  // --- By DevicePort, which knows us until we are destroyed; disposed of, nothing moves us ---
  ibv_qp* qp() const { return engine_->qp(); }
  void on_completion(const ibv_wc& completion) {
    if (disposed()) return;
    engine_->on_completion(completion);
    thread_.schedule(this);
  }
  void on_connected(const Status& status);
  void on_quiesced(QuiesceToken token);
  void on_last_receive() { engine_->on_last_receive(); }
  void fail(const Status& why);
  void tick(Time now);
  Time next_tick() const { return engine_->next_tick(); }
  const char* broken_invariant() const { return engine_->broken_invariant(); }

  // --- Resident ---
  void shut_down(const Status& why) override;
  bool progress() override;

 private:
  enum class State : uint8_t { kSettingUp, kBroken, kUsable, kEnding };
  static constexpr size_t kMaxSockets = 65536;

  EngineLink(const TransportContext& context, IoThreadImpl& thread, DevicePort& port,
             const Address& remote, Side side);

  void on_frame(FrameKind kind, SocketId socket, Buffer payload) override;
  void on_sent(SocketId socket, uint64_t cookie, const Status& status) override;
  void on_engine_failed(const Status& status) override;
  void on_ready(bool readable, bool writable) override;  // the connection beside

  EngineSocket* find(SocketId id) const {
    const size_t slot = id >> 1;
    return slot < sockets_.size() ? sockets_[slot].get() : nullptr;
  }
  void accept_socket(SocketId id, bool wanted);
  void fail_protocol(const char* what);
  void after_step();

  const TransportContext& context_;
  IoThreadImpl& thread_;
  DevicePort& port_;
  const Address remote_;
  const Side side_;
  State state_ = State::kSettingUp;
  uint32_t completions_ = 0;
  uint32_t engine_index_ = 0;
  std::unique_ptr<Engine> engine_;
  std::shared_ptr<EngineLink*> self_;  // what the engine's memory signal, on any thread, holds
  uint32_t peer_max_message_bytes_ = 0;
  Status broken_;  // kBroken: why

  std::function<void(const Status&)> report_;
  UniqueFunction<void()> ended_;
  std::optional<StreamFd> beside_;
  std::shared_ptr<Acceptance> acceptance_;  // listener side

  std::vector<std::unique_ptr<EngineSocket>> sockets_;       // by id >> 1
  std::vector<uint32_t> free_slots_;                         // connector side
  std::vector<std::unique_ptr<EngineSocket>> dead_sockets_;  // until the next progress()
};

}  // namespace be
