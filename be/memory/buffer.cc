#include "be/memory/buffer.h"

#include "be/memory/pool_core.h"
#include "be/memory/shared_memory.h"

namespace be {

static_assert(sizeof(Buffer) <= 32);

Buffer Buffer::share(size_t offset, size_t length) {
  assert(offset <= size_ && length <= size_ - offset);
  if (owner_ == nullptr) return {};
  if (!shared_) {
    auto* made = new Shared;
    made->core = static_cast<memory::PoolCore*>(owner_);
    made->memory = data_ - dropped_;
    owner_ = made;
    shared_ = true;
  }
  // Relaxed: whoever copies a handle holds one.
  static_cast<Shared*>(owner_)->handles.fetch_add(1, std::memory_order_relaxed);
  return Buffer(data_ + offset, length, length, owner_, true);
}

void Buffer::give_back() {
  void* owner = std::exchange(owner_, nullptr);
  if (!shared_) {
    static_cast<memory::PoolCore*>(owner)->deallocate(data_ - dropped_);
    return;
  }
  auto* shared = static_cast<Shared*>(owner);
  // Release our reads of the bytes; the last one acquires everybody's before giving them away.
  if (shared->handles.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  bool free = true;  // of the device
  if (shared->adopted_bytes > 0) {
    free = shared->core->release_adopted(shared->memory, shared->adopted_bytes);
  } else if (!shared->release) {
    shared->core->deallocate(shared->memory);
  }
  if (free && shared->release) shared->release();
  delete shared;
}

}  // namespace be
