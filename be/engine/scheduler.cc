#include "be/engine/scheduler.h"

#include <cassert>

namespace be {

Scheduler::Links& Scheduler::links_of(uint32_t socket) {
  if (socket >= links_.size()) links_.resize(socket + 1);
  return links_[socket];
}

void Scheduler::append(uint32_t socket, uint8_t where) {
  List& list = lists_[where];
  links_[socket] = {kNone, list.tail, where};
  if (list.tail == kNone) {
    list.head = socket;
  } else {
    links_[list.tail].next = socket;
  }
  list.tail = socket;
  if (where != kRun) ++parked_;
}

void Scheduler::unlink(uint32_t socket) {
  Links& links = links_[socket];
  List& list = lists_[links.where];
  (links.previous == kNone ? list.head : links_[links.previous].next) = links.next;
  (links.next == kNone ? list.tail : links_[links.next].previous) = links.previous;
  if (links.where != kRun) --parked_;
  links = {};
}

void Scheduler::add(uint32_t socket) {
  const Links& links = links_of(socket);
  if (links.where == kRun) return;
  if (links.where != kNowhere) unlink(socket);
  append(socket, kRun);
}

void Scheduler::add_front(uint32_t socket) {
  Links& links = links_of(socket);
  assert(links.where == kNowhere);
  List& list = lists_[kRun];
  links = {list.head, kNone, kRun};
  (list.head == kNone ? list.tail : links_[list.head].previous) = socket;
  list.head = socket;
}

uint32_t Scheduler::take() {
  const uint32_t socket = run().head;
  assert(socket != kNone);
  unlink(socket);
  return socket;
}

void Scheduler::park(uint32_t socket, Wait wait) {
  [[maybe_unused]] const Links& links = links_of(socket);
  assert(links.where == kNowhere);
  append(socket, static_cast<uint8_t>(wait));
}

void Scheduler::wake(Wait wait, uint32_t at_most) {
  for (; at_most > 0 && parked(wait); --at_most) {
    const uint32_t socket = list(wait).head;
    unlink(socket);
    append(socket, kRun);
  }
}

void Scheduler::remove(uint32_t socket) {
  if (links_of(socket).where != kNowhere) unlink(socket);
}

}  // namespace be
