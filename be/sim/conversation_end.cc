#include "be/sim/conversation_end.h"

#include <algorithm>
#include <utility>

#include "be/base/hash.h"

namespace be::sim {
namespace {

constexpr Nanoseconds kRetry = 500us;  // when there is no memory for a message

}  // namespace

void ConversationEnd::take(Plan& plan) {
  plan_ = &plan;
  plan.ends[side_] = this;
}

void ConversationEnd::on_open(Socket& socket) {
  socket_ = &socket;
  go_on();
}

void ConversationEnd::on_message(Socket& socket, Buffer message) {
  socket_ = &socket;
  if (plan_ == nullptr) {
    Plan* plan = application_.find(Conversation::number_in(message.bytes()));
    if (plan == nullptr || plan->ends[side_] != nullptr) {
      return application_.simulation().violate("a first message that is nobody's greeting");
    }
    take(*plan);
    plan->incarnations[side_] = process_.incarnation;
  }
  if (closing_) {
    return application_.simulation().violate("on_message after close()");
  }
  plan_->model->delivered(other(), message.bytes());
  hold(std::move(message));
  go_on();
}

void ConversationEnd::on_sent(Socket& socket, uint64_t cookie, const Status& status) {
  socket_ = &socket;
  --outstanding_;
  plan_->model->sent(side_, static_cast<uint32_t>(cookie - 1), status);
  go_on();
}

void ConversationEnd::on_closed(Socket&, const Status& status) {
  socket_ = nullptr;
  closing_ = true;
  if (plan_ != nullptr) plan_->model->closed(side_, status);
  if (status.code() != Code::kClosed && !process_ends_) application_.on_broken(process_);
}

void ConversationEnd::go_on() {
  if (socket_ == nullptr || plan_ == nullptr || closing_ || process_ends_) return;
  if (side_ == plan_->breaker && plan_->model->delivered_count(other()) >= plan_->break_off) {
    return close();
  }
  while (next_ < plan_->messages[side_] && outstanding_ < application_.work().outstanding) {
    if (!send_next()) break;
  }
  close_if_over();
}

bool ConversationEnd::send_next() {
  // A greeting is always eager: it must not be refused for want of memory.
  const bool greets = next_ == 0 && side_ == kConnecting;
  Random draws(mix64(uint64_t{plan_->model->number()} << 1 | side_, next_));
  const size_t size = greets ? kGreetingBytes : draws.spread(4, application_.work().message_bytes);
  Result<Buffer> buffer = process_.node->pool().allocate_buffer(size);
  Status status = buffer.status();
  if (status.ok()) {
    plan_->model->write(side_, next_, buffer->bytes());
    Message message(*std::move(buffer));
    status = socket_->send(message, next_ + 1);
  }
  if (status.ok()) {
    plan_->model->accepted(side_, next_++);
    ++outstanding_;
    return true;
  }
  if (status.code() != Code::kResourceExhausted && status.code() != Code::kClosed) {
    application_.simulation().violate("send: " + status.to_string());
  }
  if (outstanding_ == 0 && !retry_set_ && status.code() == Code::kResourceExhausted) {
    retry_set_ = true;
    IoThread& thread = socket_->thread();
    thread.timers().schedule(thread.now() + kRetry, [this] {
      retry_set_ = false;
      go_on();
    });
  }
  return false;
}

// Keeps the Buffer for a while, and looks at it once more before it is freed.
void ConversationEnd::hold(Buffer message) {
  const Nanoseconds longest = application_.work().hold_max;
  if (longest == 0ns || process_ends_) return;
  IoThread& thread = socket_->thread();
  const Nanoseconds length = plan_->random.between(0ns, longest);
  held_.push_back(std::move(message));
  thread.timers().schedule(thread.now() + length, [this] {
    if (held_.empty()) return;
    const Buffer oldest = std::move(held_.front());
    held_.erase(held_.begin());
    if (!plan_->model->intact(other(), oldest.bytes())) {
      application_.simulation().violate("a Buffer that the receiver holds has changed");
    }
  });
}

// Both ends look at the same model: the one to which the last thing happens closes, or both do.
void ConversationEnd::close_if_over() {
  if (plan_->model->complete(plan_->messages)) close();
}

void ConversationEnd::close() {
  closing_ = true;
  plan_->model->closing(side_);
  socket_->close();
}

}  // namespace be::sim
