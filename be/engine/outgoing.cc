#include "be/engine/outgoing.h"

#include <cassert>

#include "be/engine/frame.h"

namespace be {

uint32_t OutgoingMessage::payload_bytes() const { return total - FrameHeader::kBytes; }

void MessageList::push_back(OutgoingMessage* message) {
  message->next = nullptr;
  (tail_ == nullptr ? head_ : tail_->next) = message;
  tail_ = message;
}

OutgoingMessage* MessageList::pop_front() {
  OutgoingMessage* message = head_;
  assert(message != nullptr);
  head_ = message->next;
  if (head_ == nullptr) tail_ = nullptr;
  message->next = nullptr;
  return message;
}

void MessageList::remove(OutgoingMessage* message) {
  if (message == head_) {
    pop_front();
    return;
  }
  OutgoingMessage* before = head_;
  while (before->next != message) before = before->next;
  before->next = message->next;
  if (tail_ == message) tail_ = before;
  message->next = nullptr;
}

OutgoingMessage* MessagePool::take() {
  if (free_ == nullptr) {
    chunks_.push_back(std::make_unique<OutgoingMessage[]>(kChunk));
    for (size_t i = kChunk; i > 0; --i) {
      chunks_.back()[i - 1].next = free_;
      free_ = &chunks_.back()[i - 1];
    }
  }
  OutgoingMessage* message = free_;
  free_ = message->next;
  message->next = nullptr;
  ++alive_;
  return message;
}

void MessagePool::give(OutgoingMessage* message) {
  for (uint8_t i = 0; i < message->message.count; ++i) message->message.parts[i].reset();
  message->message.count = 0;
  message->result = {};
  message->stage = OutgoingMessage::Stage::kQueued;
  message->offset = 0;
  message->part = 0;
  message->part_offset = 0;
  message->next = free_;
  free_ = message;
  --alive_;
}

}  // namespace be
