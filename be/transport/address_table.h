// AddressTable: remote address -> I/O thread, dealt round robin when an address is first asked
// for, the same ever after: all sockets to one peer meet on one thread and share its engine.
//
// Any thread; one short lock, off the data path.
#pragma once

#include <cstddef>
#include <map>
#include <mutex>

#include "be/base/stream_network.h"

namespace be {

class AddressTable {
 public:
  explicit AddressTable(size_t threads) : threads_(threads) {}

  size_t thread_of(const Address& remote) {
    const std::lock_guard lock(mutex_);
    const auto [entry, is_new] = thread_of_.try_emplace(remote, next_);
    if (is_new) next_ = (next_ + 1) % threads_;
    return entry->second;
  }

 private:
  const size_t threads_;
  std::mutex mutex_;
  std::map<Address, size_t> thread_of_;  // guarded by mutex_
  size_t next_ = 0;                      // guarded by mutex_
};

}  // namespace be
