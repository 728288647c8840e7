// SharedReceives: the SRQ of one I/O thread on one device, and the buffers posted there.
//
//   engines --admit--> CreditDealer: who may use how many
//   ibv_poll_cq: qp_num says whose a completion is --> take(wr_id): its Buffer --> the engine
//       control frame, immediate, copied data:  give_back(...)    posted again as it is
//       data that is handed up:                 handed_up(...)    a fresh Buffer, when there is
//       memory
//   after each poll: polled() posts all that by one call; nobody tells its peer before
//
// The SRQ exists while an engine does: the first makes it and fills it, the last takes it down, so
// everything is back where it was when all engines are gone. At the pool's cap an entry stays
// empty, and is tried again when memory has been freed, at the latest 10 ms later.
//
// When a queue pair fails, the receives that it took from the SRQ still complete. It can be
// destroyed without losing any once the device has said that it takes no more (kLastWqeReached)
// and the completion queue was found empty after that, or as much was polled as it holds.
//
// wr_id: the upper half is kMark, which is no engine's index (engine.h); the lower half is the
// entry.
//
// Used on its I/O thread only; device and pool outlive it. Fails by Status; a failed post leaves
// what was to be posted for the next.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "be/base/status.h"
#include "be/base/time.h"
#include "be/engine/credit_dealer.h"
#include "be/memory/buffer.h"
#include "be/memory/registered_pool.h"
#include "be/verbs/device.h"

namespace be {

class SharedReceives {
 public:
  using Id = CreditDealer::Id;

  class User {
   public:
    virtual void on_receives_replaced() = 0;  // it owed them, and was dealt nothing
    virtual void on_receives_drained() = 0;   // answers draining(): no completion is to come
   protected:
    ~User() = default;
  };

  struct Resources {
    Device* device = nullptr;
    RegisteredPool* pool = nullptr;
    size_t device_index = 0;     // of `device` in `pool`
    uint32_t entries = 0;        // of the SRQ
    uint32_t bytes = 0;          // of one receive
    uint32_t completions = 0;    // that the completion queue holds
    std::function<void()> wake;  // any thread: makes the owner call retry() soon. May be empty
  };

  static constexpr uint32_t kMark = UINT32_MAX;
  static bool owns(uint64_t wr_id) { return wr_id >> 32 == kMark; }

  explicit SharedReceives(const Resources& resources);
  ~SharedReceives();  // of an engine that was left: logged, and its memory is kept
  SharedReceives(const SharedReceives&) = delete;
  SharedReceives& operator=(const SharedReceives&) = delete;

  // kResourceExhausted, with the numbers, if it does not fit beside the others, or for want of
  // memory. `user` is called until forget().
  Result<Id> admit(User* user, const CreditDealer::Claim& claim);
  void forget(Id id);  // its queue pair is destroyed, or was never made
  ibv_srq* srq() const { return srq_; }

  // The Buffer of a completed entry. It comes back by give_back or handed_up, or, if its engine is
  // gone or fails, by give_back(Buffer).
  Buffer take(uint64_t wr_id);
  void give_back(Buffer buffer);
  void give_back_data(Id id, Buffer buffer);  // a credit was spent for it
  void handed_up(Id id);

  uint32_t deal(Id id, uint32_t wish);  // credits, see CreditDealer
  void credits_given_back(Id id, uint32_t credits);
  bool owes(Id id) const { return dealer_.owed(id) > 0; }
  uint32_t dealt(Id id) const { return dealer_.dealt(id); }

  // Its queue pair is in error and takes no more receives (or has had its time):
  // on_receives_drained follows.
  void draining(Id id);

  // After every ibv_poll_cq whose completions have been told: `polled` of them, and it left the
  // queue `empty`.
  Status polled(uint32_t completions, bool empty, Time now);
  bool awaits_poll() const { return draining_ > 0; }  // polled() is wanted, with 0 completions too
  Status retry(Time now);                             // memory was freed, or next_retry() has come
  Time next_retry() const { return retry_; }
  bool memory_freed() const { return signal_->freed.load(std::memory_order_relaxed); }

  const char* broken_invariant() const;  // as an equation; null: all hold
  const CreditDealer& dealer() const { return dealer_; }

 private:
  static constexpr uint32_t kBatch = 32;  // receives posted by one call
  static constexpr Nanoseconds kMemoryRetry = 10ms;

  struct Member {
    User* user = nullptr;
    bool starved = false;  // was dealt nothing, for want of memory
    bool draining = false;
    // An empty queue means something from this poll on; and when so many completions were polled,
    // whatever was in the queue has been among them.
    uint64_t first_poll = 0;
    uint64_t last_completion = 0;
  };

  Status set_up();
  void tear_down();
  Status post(Time now);
  Status link(Buffer buffer);
  Status flush();
  bool replace_one(Time now);  // with fresh memory; false: there is none
  void stall(Time now);
  void tell_drained(bool empty);

  const Resources resources_;
  const std::string name_;
  ibv_srq* srq_ = nullptr;
  CreditDealer dealer_;
  std::vector<Member> members_;  // by id
  std::vector<Buffer> posted_;   // by entry
  std::vector<uint32_t> empty_;  // entries that are not posted
  std::vector<Buffer> ready_;    // to be posted again
  ibv_recv_wr wrs_[kBatch];
  ibv_sge sges_[kBatch];
  uint32_t linked_ = 0;

  uint64_t polls_ = 0;
  uint64_t completions_ = 0;  // polled
  uint32_t draining_ = 0;     // members that are

  struct MemorySignal {
    std::atomic<bool> freed{false};
    std::function<void()> wake;
  };
  const std::shared_ptr<MemorySignal> signal_;
  uint64_t on_free_id_ = 0;
  Time retry_ = kNever;
};

}  // namespace be
