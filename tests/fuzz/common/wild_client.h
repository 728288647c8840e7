// A client of an rpc server that sends what it likes, and judges what it hears.
#pragma once

#include <set>
#include <vector>

#include "be/rpc/frame.h"
#include "tests/common/must_hold.h"
#include "tests/fuzz/common/input.h"
#include "tests/unit/rpc/fake_node.h"

namespace be::fuzz {

class WildClient final : public SocketHandler {
 public:
  explicit WildClient(rpc::FakeNode& node) : node_(node) {}

  void on_open(Socket& socket) override { socket_ = &socket; }
  void on_message(Socket&, Buffer message) override {
    rpc::FrameHeader header;
    MUST_HOLD(rpc::parse_frame(message, header).ok());
    MUST_HOLD(header.type == rpc::FrameType::kResponse);
    const auto asked = asked_.find(header.call_id);  // one answer to one request
    MUST_HOLD(asked != asked_.end());
    asked_.erase(asked);
    answers.push_back({header.call_id, header.code, rpc::split_frame(header, std::move(message))});
  }
  void on_sent(Socket&, uint64_t, const Status&) override {}
  void on_closed(Socket&, const Status&) override {
    socket_ = nullptr;
    asked_.clear();
  }

  bool open() const { return socket_ != nullptr; }
  size_t unanswered() const { return asked_.size(); }
  void close() {
    if (socket_ != nullptr) socket_->close();
  }

  void send_bytes(std::span<const uint8_t> bytes) {
    if (socket_ == nullptr || bytes.empty()) return;
    Buffer buffer = node_.pool().allocate_buffer(bytes.size()).value();
    std::memcpy(buffer.data(), bytes.data(), bytes.size());
    Message message(std::move(buffer));
    if (!socket_->send(message, 0).ok()) return;     // the queue is full
    if (bytes.size() >= sizeof(rpc::FrameHeader)) {  // it may look like a request
      rpc::FrameHeader header;
      std::memcpy(&header, bytes.data(), sizeof(header));
      asked_.insert(header.call_id);
    }
  }

  // A request by the rules. Its call id.
  uint64_t ask(uint32_t method, std::span<const uint8_t> body,
               std::span<const uint8_t> attachment = {}, uint32_t timeout_us = 1'000'000) {
    rpc::FrameHeader header;
    header.type = rpc::FrameType::kRequest;
    header.method = method;
    header.call_id = ++last_id_;
    header.timeout_us = timeout_us;
    header.body_bytes = static_cast<uint32_t>(body.size());
    header.attachment_bytes = static_cast<uint32_t>(attachment.size());
    send_frame(header, body, attachment);
    return header.call_id;
  }
  void send_frame(const rpc::FrameHeader& header, std::span<const uint8_t> body,
                  std::span<const uint8_t> attachment) {
    std::vector<uint8_t> bytes(sizeof(header));
    std::memcpy(bytes.data(), &header, sizeof(header));
    bytes.insert(bytes.end(), body.begin(), body.end());
    bytes.insert(bytes.end(), attachment.begin(), attachment.end());
    send_bytes(bytes);
  }
  uint64_t last_id() const { return last_id_; }

  struct Answer {
    uint64_t call_id;
    uint8_t code;
    rpc::Payload payload;
  };
  std::vector<Answer> answers;

 private:
  rpc::FakeNode& node_;
  Socket* socket_ = nullptr;
  std::multiset<uint64_t> asked_;
  uint64_t last_id_ = 0;
};

}  // namespace be::fuzz
