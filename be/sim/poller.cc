#include "be/sim/poller.h"

#include <cerrno>
#include <vector>

#include "be/sim/executor.h"
#include "be/sim/host.h"

namespace be::sim {

void Descriptor::changed() {
  if (poller_ != nullptr) poller_->on_change(*this);
}

VirtualPoller::~VirtualPoller() {
  for (auto& [fd, watch] : watches_) watch.descriptor->watched_by(nullptr);
}

Status VirtualPoller::add(int fd, PollHandler* handler, bool writable) {
  Descriptor* descriptor = host_.find(fd);
  if (descriptor == nullptr) return error_from_errno(EBADF, "epoll_ctl add");
  if (watches_.contains(fd)) return error_from_errno(EEXIST, "epoll_ctl add");
  watches_[fd] = {descriptor, handler, true, writable};
  descriptor->watched_by(this);
  on_change(*descriptor);
  return {};
}

Status VirtualPoller::set_writable(int fd, bool writable) {
  const auto watch = watches_.find(fd);
  if (watch == watches_.end()) return error_from_errno(ENOENT, "epoll_ctl mod");
  watch->second.writes = writable;
  return {};
}

Status VirtualPoller::set_readable(int fd, bool readable) {
  const auto watch = watches_.find(fd);
  if (watch == watches_.end()) return error_from_errno(ENOENT, "epoll_ctl mod");
  watch->second.reads = readable;
  return {};
}

void VirtualPoller::remove(int fd) {
  const auto watch = watches_.find(fd);
  if (watch == watches_.end()) return;
  watch->second.descriptor->watched_by(nullptr);
  watches_.erase(watch);
}

int VirtualPoller::wait(Time until) {
  std::vector<int> ready;
  for (const auto& [fd, watch] : watches_) {
    if (watch.ready_to_read() || watch.ready_to_write()) ready.push_back(fd);
  }
  int handlers = 0;
  for (const int fd : ready) {
    const auto watch = watches_.find(fd);  // an earlier handler may have removed it
    if (watch == watches_.end()) continue;
    const bool reads = watch->second.ready_to_read();
    const bool writes = watch->second.ready_to_write();
    if (!reads && !writes) continue;
    ++handlers;
    watch->second.handler->on_ready(reads, writes);
  }
  const bool woken = woken_;
  woken_ = false;
  if (handlers == 0 && !woken && until > host_.simulation().now()) sleeps_until_ = until;
  return handlers;
}

void VirtualPoller::wake() {
  woken_ = true;
  if (loop_ != nullptr) loop_->wake();
}

void VirtualPoller::on_change(const Descriptor& descriptor) {
  if (loop_ == nullptr) return;
  for (const auto& [fd, watch] : watches_) {
    if (watch.descriptor == &descriptor && (watch.ready_to_read() || watch.ready_to_write())) {
      loop_->wake();
      return;
    }
  }
}

}  // namespace be::sim
