// ListenerImpl: accepts connections and deals them, round robin, to the node's I/O threads, where
// each has its handshake. The listener itself waits for nobody.
//
// The object the user holds may be destroyed from any thread; the descriptor belongs to one I/O
// thread, so destruction goes there and waits for it.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "be/base/fork.h"
#include "be/transport/acceptance.h"
#include "be/transport/io_thread_impl.h"
#include "be/transport/stream_fd.h"
#include "be/transport/transport_context.h"

namespace be {

// What an accepted connection is handed to; called on the listener's I/O thread.
using Deal = std::function<void(StreamFd fd, const Address& remote,
                                const std::shared_ptr<Acceptance>& acceptance)>;

class AcceptLoop final : public Resident, private PollHandler {
 public:
  AcceptLoop(IoThreadImpl& thread, StreamFd fd, std::shared_ptr<Acceptance> acceptance, Deal deal);
  ~AcceptLoop() override;

  Status start();
  void stop();  // the port is free when this returns
  void shut_down(const Status&) override { stop(); }

 private:
  static constexpr int kAcceptsPerTurn = 32;
  static constexpr Nanoseconds kPauseAfterError = 50ms;  // descriptors may be back by then

  void on_ready(bool readable, bool writable) override;
  void pause();

  IoThreadImpl& thread_;
  std::optional<StreamFd> fd_;  // nothing: stopped
  const std::shared_ptr<Acceptance> acceptance_;
  const Deal deal_;
  TimerId pause_timer_ = 0;
};

class ListenerImpl final : public Listener {
 public:
  static Result<std::unique_ptr<Listener>> create(const TransportContext& context,
                                                  IoThreadImpl& thread, const Address& address,
                                                  Acceptor acceptor, Deal deal);
  ~ListenerImpl() override;
  const Address& address() const override { return address_; }

 private:
  ListenerImpl(IoThreadImpl& thread, const Address& address,
               std::shared_ptr<Acceptance> acceptance);

  const ForkGuard fork_guard_;
  IoThreadImpl& thread_;
  const Address address_;
  const std::shared_ptr<Acceptance> acceptance_;
  AcceptLoop* loop_ = nullptr;  // used on thread_ only
};

}  // namespace be
