#include "be/engine/shared_receives.h"

#include <cassert>
#include <utility>

#include "be/base/log.h"
#include "be/verbs/errors.h"

namespace be {

SharedReceives::SharedReceives(const Resources& resources)
    : resources_(resources),
      name_(
          fmt::format("the SRQ of {} receives on {}", resources.entries, resources.device->name())),
      dealer_(resources.entries),
      signal_(std::make_shared<MemorySignal>()) {
  signal_->wake = resources.wake;
}

SharedReceives::~SharedReceives() { tear_down(); }

Result<SharedReceives::Id> SharedReceives::admit(User* user, const CreditDealer::Claim& claim) {
  const bool first = dealer_.engines() == 0;
  if (first) {
    if (Status status = set_up(); !status.ok()) {
      tear_down();
      return status.with_context(name_);
    }
  }
  const Id id = dealer_.admit(claim);
  if (id == CreditDealer::kNobody) {
    if (first) tear_down();
    return error(Code::kResourceExhausted,
                 "{}: {} more are needed, {} are free beside {} engines; engine.shared_receives "
                 "can be raised",
                 name_, claim.reserve + claim.floor, dealer_.free(), dealer_.engines());
  }
  if (id >= members_.size()) members_.resize(id + 1);
  members_[id].user = user;
  return id;
}

void SharedReceives::forget(Id id) {
  if (members_[id].draining) --draining_;
  members_[id] = Member{};
  dealer_.forget(id);
  if (dealer_.engines() == 0) tear_down();
}

Status SharedReceives::set_up() {
  BE_ASSIGN_OR_RETURN(srq_, resources_.device->create_srq(resources_.entries, 1));
  posted_.resize(resources_.entries);
  for (uint32_t entry = resources_.entries; entry > 0; --entry) empty_.push_back(entry - 1);
  while (!empty_.empty()) {
    BE_ASSIGN_OR_RETURN(Buffer buffer, resources_.pool->allocate_buffer(resources_.bytes));
    BE_RETURN_IF_ERROR(link(std::move(buffer)));
  }
  return flush();
}

// No queue pair uses it any more: nobody can touch its buffers.
void SharedReceives::tear_down() {
  if (on_free_id_ != 0) resources_.pool->cancel_on_free(std::exchange(on_free_id_, 0));
  signal_->freed.store(false, std::memory_order_relaxed);
  retry_ = kNever;
  linked_ = 0;
  dealer_ = CreditDealer(resources_.entries);
  if (srq_ != nullptr) {
    if (Status status = resources_.device->destroy_srq(std::exchange(srq_, nullptr));
        !status.ok()) {
      log_error("{}: its memory is kept: {}", name_, status.to_string());
      static_cast<void>(new std::vector<Buffer>(std::move(posted_)));
    }
  }
  posted_.clear();
  empty_.clear();
  ready_.clear();
}

Buffer SharedReceives::take(uint64_t wr_id) {
  const auto entry = static_cast<uint32_t>(wr_id);
  assert(entry < posted_.size() && !posted_[entry].empty());
  empty_.push_back(entry);
  return std::move(posted_[entry]);
}

void SharedReceives::give_back(Buffer buffer) { ready_.push_back(std::move(buffer)); }

void SharedReceives::give_back_data(Id id, Buffer buffer) {
  dealer_.consumed(id);
  dealer_.posted_again(id);
  give_back(std::move(buffer));
}

void SharedReceives::handed_up(Id id) { dealer_.consumed(id); }

uint32_t SharedReceives::deal(Id id, uint32_t wish) {
  const uint32_t count = dealer_.deal(id, wish);
  members_[id].starved = count == 0 && owes(id);
  return count;
}

void SharedReceives::credits_given_back(Id id, uint32_t credits) {
  dealer_.given_back(id, credits);
}

// --- Posting

Status SharedReceives::polled(uint32_t completions, bool empty, Time now) {
  ++polls_;
  completions_ += completions;
  if (draining_ > 0) tell_drained(empty);
  return completions > 0 ? post(now) : Status();
}

Status SharedReceives::retry(Time now) {
  signal_->freed.store(false, std::memory_order_relaxed);
  if (srq_ == nullptr) return {};
  if (on_free_id_ != 0) resources_.pool->cancel_on_free(std::exchange(on_free_id_, 0));
  retry_ = kNever;
  return post(now);
}

Status SharedReceives::post(Time now) {
  if (srq_ == nullptr) return {};  // these were completions of engines that are gone
  while (!ready_.empty()) {
    Buffer buffer = std::move(ready_.back());
    ready_.pop_back();
    BE_RETURN_IF_ERROR(link(std::move(buffer)));
  }
  if (retry_ == kNever) {
    while (dealer_.missing() > 0) {
      Result<Buffer> fresh = resources_.pool->allocate_buffer(resources_.bytes);
      if (!fresh.ok()) {
        stall(now);
        break;
      }
      BE_RETURN_IF_ERROR(link(*std::move(fresh)));
      const Id id = dealer_.least_owing();
      dealer_.replaced(id);
      if (id != CreditDealer::kNobody && std::exchange(members_[id].starved, false)) {
        members_[id].user->on_receives_replaced();
      }
    }
  }
  return flush();
}

Status SharedReceives::link(Buffer buffer) {
  const uint32_t entry = empty_.back();
  empty_.pop_back();
  const RegionKeys* keys = resources_.pool->region(buffer.data(), resources_.device_index);
  sges_[linked_] = {reinterpret_cast<uintptr_t>(buffer.data()), resources_.bytes, keys->lkey};
  wrs_[linked_] = {uint64_t{kMark} << 32 | entry, nullptr, &sges_[linked_], 1};
  if (linked_ > 0) wrs_[linked_ - 1].next = &wrs_[linked_];
  posted_[entry] = std::move(buffer);
  return ++linked_ < kBatch ? Status() : flush();
}

Status SharedReceives::flush() {
  if (linked_ == 0) return {};
  ibv_recv_wr* bad = nullptr;
  const int error_number = ibv_post_srq_recv(srq_, wrs_, &bad);
  const uint32_t count = std::exchange(linked_, 0);
  if (error_number == 0) return {};
  for (auto i = static_cast<uint32_t>(bad - wrs_); i < count; ++i) {
    const auto entry = static_cast<uint32_t>(wrs_[i].wr_id);
    ready_.push_back(std::move(posted_[entry]));
    empty_.push_back(entry);
  }
  return verb_error("ibv_post_srq_recv", error_number, name_);
}

void SharedReceives::stall(Time now) {
  retry_ = saturating_add(now, kMemoryRetry);
  if (on_free_id_ != 0) return;
  on_free_id_ = resources_.pool->on_free([signal = signal_] {
    signal->freed.store(true, std::memory_order_release);
    if (signal->wake) signal->wake();
  });
}

// --- Draining

void SharedReceives::draining(Id id) {
  Member& member = members_[id];
  if (member.draining) return;
  member.draining = true;
  ++draining_;
  member.first_poll = polls_ + 2;  // the next may be a poll that is being told of right now
  member.last_completion = completions_ + 2 * uint64_t{resources_.completions};
}

void SharedReceives::tell_drained(bool empty) {
  for (Member& member : members_) {
    if (!member.draining) continue;
    const bool dry = empty && polls_ >= member.first_poll;
    if (!dry && completions_ < member.last_completion) continue;
    member.draining = false;
    --draining_;
    member.user->on_receives_drained();
  }
}

const char* SharedReceives::broken_invariant() const {
  if (srq_ == nullptr) return nullptr;
  if (const char* broken = dealer_.broken_invariant()) return broken;
  if (empty_.size() != dealer_.missing() + ready_.size()) {
    return "entries that are not posted == those owed + those to be posted";
  }
  return nullptr;
}

}  // namespace be
