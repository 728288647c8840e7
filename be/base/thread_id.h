// Which kernel thread this is, for comparing only: whether two calls come from the same one.
//
// Any thread. The id of a thread that has ended may come again. A simulation runs everything in
// one thread.
#pragma once

namespace be {

using ThreadId = const void*;  // null is no thread

inline ThreadId this_thread_id() {
  static thread_local char place;
  return &place;
}

}  // namespace be
