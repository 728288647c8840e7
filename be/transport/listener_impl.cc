#include "be/transport/listener_impl.h"

#include <utility>

#include "be/base/log.h"
#include "be/transport/run_on.h"

namespace be {

AcceptLoop::AcceptLoop(IoThreadImpl& thread, StreamFd fd, std::shared_ptr<Acceptance> acceptance,
                       Deal deal)
    : thread_(thread),
      fd_(std::move(fd)),
      acceptance_(std::move(acceptance)),
      deal_(std::move(deal)) {}

AcceptLoop::~AcceptLoop() { stop(); }

Status AcceptLoop::start() { return thread_.poller().add(fd_->get(), this); }

void AcceptLoop::stop() {
  if (!fd_) return;
  if (pause_timer_ != 0) thread_.timers().cancel(pause_timer_);
  thread_.poller().remove(fd_->get());
  fd_.reset();
  thread_.dispose(this);
}

void AcceptLoop::on_ready(bool, bool) {
  StreamNetwork& network = thread_.world().network();
  for (int turn = 0; turn < kAcceptsPerTurn && fd_; ++turn) {
    const Result<int> accepted = network.accept(fd_->get());
    if (!accepted.ok()) {
      log_warn("accept: {}", accepted.status().to_string());
      pause();
      return;
    }
    if (*accepted < 0) return;
    StreamFd fd(thread_.world(), *accepted);
    const Result<Address> remote = network.remote_address(fd.get());
    if (remote.ok()) deal_(std::move(fd), *remote, acceptance_);  // else it has gone already
  }
}

// The listener stays ready: without a pause its thread would do nothing else.
void AcceptLoop::pause() {
  if (!thread_.poller().set_readable(fd_->get(), false).ok()) return;
  pause_timer_ = thread_.timers().schedule(thread_.now() + kPauseAfterError, [this] {
    pause_timer_ = 0;
    thread_.poller().set_readable(fd_->get(), true).ignore();
  });
}

Result<std::unique_ptr<Listener>> ListenerImpl::create(const TransportContext& context,
                                                       IoThreadImpl& thread, const Address& address,
                                                       Acceptor acceptor, Deal deal) {
  BE_ASSIGN_OR_RETURN(const int fd, context.world.network().listen(address));
  StreamFd listening(context.world, fd);
  BE_ASSIGN_OR_RETURN(const Address bound, context.world.network().local_address(fd));
  auto acceptance = std::make_shared<Acceptance>(std::move(acceptor));
  std::unique_ptr<ListenerImpl> listener(new ListenerImpl(thread, bound, acceptance));
  Status status;
  run_on(thread, [&] {
    listener->loop_ = thread.adopt(std::make_unique<AcceptLoop>(
        thread, std::move(listening), std::move(acceptance), std::move(deal)));
    status = listener->loop_->start();
  });
  if (!status.ok()) return status;
  return std::unique_ptr<Listener>(std::move(listener));
}

ListenerImpl::ListenerImpl(IoThreadImpl& thread, const Address& address,
                           std::shared_ptr<Acceptance> acceptance)
    : thread_(thread), address_(address), acceptance_(std::move(acceptance)) {}

ListenerImpl::~ListenerImpl() {
  if (fork_guard_.in_child()) return;  // the thread, and all of `loop_`, is the parent's
  acceptance_->stop();
  run_on(thread_, [this] {
    if (loop_ != nullptr) loop_->stop();
  });
}

}  // namespace be
