// Another device as its peers see it: its control and data memory, mapped once, and its pulse.
//
// Shared by all our QPs to that device, on any thread; unmapped when the last of them is gone.
// What the peer says about itself (sizes, offsets) is checked against the descriptors here.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "be/base/status.h"
#include "be/base/unique_fd.h"
#include "be/softnic/shared_layout.h"

namespace be::softnic {

struct PeerIdentity {
  pid_t pid = 0;
  uint64_t instance = 0;                                  // random, of the device
  auto operator<=>(const PeerIdentity&) const = default;  // NOLINT(modernize-use-nullptr)
};

class Peer {
 public:
  ~Peer();
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  const PeerIdentity& identity() const { return identity_; }
  int pidfd() const { return pidfd_.get(); }

  // Null unless [offset, offset + bytes) lies in the control memory and is aligned for T.
  template <typename T>
  T* control(uint64_t offset, uint64_t count = 1) const {
    return offset % alignof(T) == 0 && within(offset, count * sizeof(T), control_size_)
               ? reinterpret_cast<T*>(control_ + offset)
               : nullptr;
  }

  // Bytes of a SEND to fetch; null: not within the peer's memory.
  const uint8_t* readable(uint32_t file, uint64_t offset, uint32_t length) const {
    if (file == kDataFile) {
      const uint8_t* data = data_.load(std::memory_order_acquire);
      return data && within(offset, length, data_size_) ? data + offset : nullptr;
    }
    return file == kControlFile && within(offset, length, control_size_) ? control_ + offset
                                                                         : nullptr;
  }

  // Maps the pages of our ring over there, ahead of the first messages.
  void populate_ring(Slot* ring, uint32_t depth);

  // Where a remote access with these rights goes; null: the peer does not allow it.
  uint8_t* remote(uint32_t rkey, uint64_t address, uint32_t length, uint32_t needed);

 private:
  friend class PeerTable;
  Peer(PeerIdentity identity, UniqueFd pidfd, uint8_t* control, size_t control_size,
       RegionEntry* regions);
  Status map_data(int fd, uint64_t size);
  Result<int> event_fd(uint64_t channel, UniqueFd fd);
  void populate(uint64_t begin, uint64_t end, uint64_t offset, uint64_t bytes);

  static bool within(uint64_t offset, uint64_t bytes, uint64_t size) {
    return offset <= size && bytes <= size - offset;
  }

  const PeerIdentity identity_;
  const UniqueFd pidfd_;
  uint8_t* const control_;
  const size_t control_size_;
  RegionEntry* const regions_;
  std::atomic<uint8_t*> data_{nullptr};
  size_t data_size_ = 0;                                // set before data_
  std::unique_ptr<std::atomic<uint64_t>[]> populated_;  // a bit per window, set before data_
  std::mutex mutex_;
  std::map<uint64_t, UniqueFd> event_fds_;  // by channel
};

// What a peer hands over when a QP is connected.
struct PeerOffer {
  PeerIdentity identity;
  uint64_t channel = 0;
  uint64_t control_size = 0;
  uint64_t data_size = 0;
  uint64_t regions_offset = 0;
  UniqueFd pidfd;
  UniqueFd control;
  UniqueFd data;  // none: it has no shared memory yet
  UniqueFd event;
};

// The peers of one device. Any thread.
class PeerTable {
 public:
  struct Attached {
    std::shared_ptr<Peer> peer;
    int event_fd = -1;  // wakes the peer's channel; owned by the peer
  };
  Result<Attached> attach(PeerOffer offer);

 private:
  std::mutex mutex_;
  std::map<PeerIdentity, std::weak_ptr<Peer>> peers_;
};

}  // namespace be::softnic
