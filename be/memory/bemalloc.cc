#include "be/memory/bemalloc.h"

#include <memory>
#include <mutex>
#include <optional>
#include <type_traits>

#include "be/base/fork.h"
#include "be/base/log.h"

namespace be::bemalloc {
namespace {

struct Lifecycle {
  std::mutex mutex;  // innermost: pools are made and destroyed outside it
  RegisteredPool* pool = nullptr;
  bool owned = false;              // made by init; else somebody else's
  std::optional<ForkGuard> guard;  // of the process that initialised
  bool was_shut_down = false;

  bool dead() const { return guard.has_value() && guard->in_child(); }
};

// Never destroyed: threads, and containers of static life, may end after static destructors.
constinit Lifecycle the_lifecycle;
static_assert(std::is_trivially_destructible_v<Lifecycle>);

// Before main: it is there, and whole, in a child that is forked at any time.
[[maybe_unused]] const bool kForkSafe = [] {
  keep_across_forks(the_lifecycle.mutex);
  return true;
}();

Status check_not_initialised(const Lifecycle& state) {
  if (state.pool == nullptr || state.dead()) return ok_status();
  return Status(Code::kAlreadyExists, "bemalloc is initialised already");
}

Status install(RegisteredPool* pool, bool owned) {
  Lifecycle& state = the_lifecycle;
  std::unique_ptr<RegisteredPool> inherited;  // destroyed after the lock
  const std::lock_guard lock(state.mutex);
  BE_RETURN_IF_ERROR(check_not_initialised(state));
  if (state.owned) inherited.reset(state.pool);
  state.pool = pool;
  state.owned = owned;
  state.guard.emplace();
  internal::default_pool.store(pool, std::memory_order_release);
  return ok_status();
}

}  // namespace

namespace internal {

constinit std::atomic<RegisteredPool*> default_pool{nullptr};

Status not_initialised() {
  Lifecycle& state = the_lifecycle;
  const std::lock_guard lock(state.mutex);
  return Status(Code::kClosed, state.was_shut_down
                                   ? "bemalloc was shut down"
                                   : "bemalloc is not initialised: be::bemalloc::init comes first");
}

void deallocate_without_pool(void* pointer) {
  if (pointer == nullptr) return;
  {
    Lifecycle& state = the_lifecycle;
    const std::lock_guard lock(state.mutex);
    if (state.was_shut_down) return;
  }
  log_error("deallocate of {}, but bemalloc has never been initialised", pointer);
}

}  // namespace internal

Status init(const PoolOptions& options, std::span<Device* const> devices) {
  {
    Lifecycle& state = the_lifecycle;
    const std::lock_guard lock(state.mutex);
    BE_RETURN_IF_ERROR(check_not_initialised(state));
  }
  BE_ASSIGN_OR_RETURN(auto made, RegisteredPool::create(options));
  for (Device* device : devices) {
    if (device == nullptr) return Status(Code::kInvalidArgument, "bemalloc: a device is null");
    const auto index = made->add_device(device);
    if (!index.ok()) return index.status();
  }
  BE_RETURN_IF_ERROR(install(made.get(), true));
  static_cast<void>(made.release());
  return ok_status();
}

Status init(RegisteredPool& pool) { return install(&pool, false); }

Status shutdown() {
  std::unique_ptr<RegisteredPool> owned;
  {
    Lifecycle& state = the_lifecycle;
    const std::lock_guard lock(state.mutex);
    if (state.pool == nullptr) return Status(Code::kClosed, "bemalloc is not initialised");
    if (state.dead()) return forked_status("bemalloc");
    internal::default_pool.store(nullptr, std::memory_order_release);
    if (state.owned) owned.reset(state.pool);
    state.pool = nullptr;
    state.owned = false;
    state.guard.reset();
    state.was_shut_down = true;
  }
  if (owned == nullptr) return ok_status();
  const PoolStats left = owned->stats();
  owned.reset();
  if (left.allocations == 0) return ok_status();
  return error(Code::kInvalidArgument,
               "bemalloc was shut down with {} live allocations of {} bytes; their memory is kept",
               left.allocations, left.live_bytes);
}

}  // namespace be::bemalloc
