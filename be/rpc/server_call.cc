#include <utility>

#include "be/rpc/server.h"
#include "be/rpc/server_connection.h"

namespace be::rpc {

void ServerCall::LetGo::operator()(State* state) const {
  const auto last = std::move(state->connection);  // owns the state
}

ServerCall& ServerCall::operator=(ServerCall&& other) noexcept {
  ServerCall replaced = std::move(*this);
  state_ = std::move(other.state_);
  return *this;
}

ServerCall::~ServerCall() {
  if (state_ == nullptr) return;
  fail(error(Code::kInternal, "the handler gave no answer"));
}

Buffer& ServerCall::body() { return state_->request.body; }
Buffer& ServerCall::attachment() { return state_->request.attachment; }
Time ServerCall::deadline() const { return state_->deadline; }

bool ServerCall::cancelled() const { return state_->cancelled.load(std::memory_order_relaxed); }

void ServerCall::on_cancel(UniqueFunction<void()> hook) {
  state_->cancel_hook = new UniqueFunction<void()>(std::move(hook));  // owned by who takes it out
  if (state_->cancelled) state_->run_cancel_hook();
}

void ServerCall::reply(Payload response) {
  state_->response = std::move(response);
  ServerConnection::answer(std::move(state_));
}

void ServerCall::fail(const Status& status) {
  state_->failure =
      status.ok() ? error(Code::kInternal, "a call was failed without a reason") : status;
  ServerConnection::answer(std::move(state_));
}

}  // namespace be::rpc
