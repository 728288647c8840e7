#include "apps/perf_flow.h"

#include <utility>

#include "apps/touch.h"

namespace be::apps {

void PerfFlow::connect(const Address& server, Nanoseconds timeout) {
  node_.connect(server, {.connect_timeout = timeout, .transport = {}}, this);
}

void PerfFlow::on_open(Socket& socket) {
  socket_ = &socket;
  const Status sent = send_frame(node_.pool(), socket, encode_greeting(greeting_));
  if (!sent.ok()) fail(sent);
}

void PerfFlow::on_message(Socket&, Buffer message) {
  if (!failure_.ok()) return;
  if (ready_) return take_reply(message);
  const Status welcome = decode_welcome(message.bytes());
  if (!welcome.ok()) return fail(welcome);
  ready_ = true;
}

void PerfFlow::start(uint32_t message_bytes, uint32_t outstanding) {
  message_bytes_ = message_bytes;
  outstanding_ = outstanding;
  begun_.assign(outstanding, Time{});
  content_.reset();
  done_ = Done();
  sending_ = true;
  for (uint32_t i = 0; i < outstanding && failure_.ok(); ++i) send_one(clock());
}

void PerfFlow::send_one(Time begin) {
  begun_[done_.sent % outstanding_] = begin;
  const Status sent = try_send();
  if (!sent.ok()) return fail(sent);
  ++done_.sent;
}

Status PerfFlow::try_send() {
  Buffer payload;
  if (greeting_.touch) {
    BE_ASSIGN_OR_RETURN(payload, node_.pool().allocate_buffer(message_bytes_));
    rewrite(payload.data(), message_bytes_, ++written_);
  } else {
    if (!content_) {
      BE_ASSIGN_OR_RETURN(content_, node_.pool().allocate_buffer(message_bytes_));
      rewrite(content_.data(), message_bytes_, ++written_);
    }
    payload = content_.share(0, message_bytes_);
  }
  Message message(std::move(payload));
  return socket_->send(message, 0);
}

void PerfFlow::take_reply(const Buffer& reply) {
  if (done_.answered == done_.sent || reply.size() != greeting_.reply_bytes) {
    return fail(error(Code::kProtocol, "{} bytes came, replies have {} and {} are due",
                      reply.size(), greeting_.reply_bytes, done_.sent - done_.answered));
  }
  if (greeting_.touch) sum_ += read_all(reply.data(), reply.size());
  const Time now = clock();
  const Nanoseconds took = now - begun_[done_.answered++ % outstanding_];
  done_.times_ns.record(static_cast<uint64_t>(took.count()));
  done_.last_reply = now;
  if (sending_) return send_one(now);
  if (idle()) content_.reset();
}

void PerfFlow::on_closed(Socket&, const Status& status) {
  socket_ = nullptr;
  fail(status);
}

void PerfFlow::fail(const Status& why) {
  if (failure_.ok()) failure_ = why;
  failed_ = true;
  sending_ = false;
  content_.reset();
}

}  // namespace be::apps
