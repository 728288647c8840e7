// Runs something on an I/O thread and waits for it: for the blocking ends of the API (listen,
// destructors), which are never used on a started I/O thread.
#pragma once

#include <memory>

#include "be/transport/io_thread.h"

namespace be {

// Runs `action` on `thread` and returns when it has run. A thread that has stopped touches
// nothing any more: then, and on `thread` itself, it runs here.
template <typename Action>
void run_on(IoThread& thread, Action action) {
  if (!thread.on_this_thread()) {
    const std::unique_ptr<Gate> done = thread.world().executor().make_gate();
    if (thread.post([&] {
          action();
          done->open();
        })) {
      done->wait();
      return;
    }
  }
  action();
}

}  // namespace be
