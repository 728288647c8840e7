#include "be/softnic/peer.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "be/base/aligned_mapping.h"
#include "be/base/failpoint.h"
#include "be/verbs/rc/memory_key.h"

namespace be::softnic {
namespace {

// A peer's first touch of an existing page costs a fault; ahead of time it is four times
// cheaper (PEERS.md, Pages). Larger windows would stall a small WRITE.
constexpr uint64_t kPopulateWindow = uint64_t{1} << 20;

// A descriptor that cannot shrink under us (SIGBUS) and has at least `size` bytes.
Status check_file(int fd, uint64_t size, std::string_view what) {
  struct stat status {};
  if (fstat(fd, &status) != 0) return error_from_errno(errno, what);
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0 || !(seals & F_SEAL_SHRINK)) {
    return error(Code::kProtocol, "softnic: {} of the peer is not sealed against shrinking", what);
  }
  if (size == 0 || size > static_cast<uint64_t>(status.st_size)) {
    return error(Code::kProtocol, "softnic: {} of the peer has {} bytes, not {}", what,
                 status.st_size, size);
  }
  return {};
}

Result<uint8_t*> map_file(int fd, uint64_t size, std::string_view what) {
  BE_RETURN_IF_ERROR(check_file(fd, size, what));
  void* base = map_shared_aligned(fd, size, kHugePageBytes);
  if (base == MAP_FAILED) return error_from_errno(errno, "softnic: mapping a peer");
  return static_cast<uint8_t*>(base);
}

}  // namespace

Peer::Peer(PeerIdentity identity, UniqueFd pidfd, uint8_t* control, size_t control_size,
           RegionEntry* regions)
    : identity_(identity),
      pidfd_(std::move(pidfd)),
      control_(control),
      control_size_(control_size),
      regions_(regions) {}

Peer::~Peer() {
  munmap(control_, control_size_);
  if (uint8_t* data = data_.load(std::memory_order_relaxed)) munmap(data, data_size_);
}

uint8_t* Peer::remote(uint32_t rkey, uint64_t address, uint32_t length, uint32_t needed) {
  const uint32_t index = rc::key_index(rkey);
  uint8_t* data = data_.load(std::memory_order_acquire);
  if (rkey == 0 || index >= kMaxRegions || data == nullptr) return nullptr;
  const RegionEntry& entry = regions_[index];
  if (entry.key.load(std::memory_order_acquire) != rkey) return nullptr;
  const rc::Region region{.address = entry.address.load(std::memory_order_relaxed),
                          .length = entry.length.load(std::memory_order_relaxed),
                          .access = entry.access.load(std::memory_order_relaxed)};
  const uint64_t base = entry.offset.load(std::memory_order_relaxed);
  // The entry may have changed hands while we read it.
  std::atomic_thread_fence(std::memory_order_acquire);
  if (entry.key.load(std::memory_order_relaxed) != rkey) return nullptr;
  if (!region.allows(address, length, needed)) return nullptr;
  if (!within(base, region.length, data_size_)) return nullptr;
  const uint64_t offset = base + (address - region.address);
  populate(base, base + region.length, offset, length);
  return data + offset;
}

void Peer::populate_ring(Slot* ring, uint32_t depth) {
  const uint64_t begin = static_cast<uint64_t>(reinterpret_cast<uint8_t*>(ring) - control_);
  const uint64_t from = begin & ~uint64_t{4095};
  madvise(control_ + from, begin + uint64_t{depth} * sizeof(Slot) - from, MADV_POPULATE_WRITE);
}

// Maps the pages of the windows around [offset, offset + bytes), within the region (beyond it
// the file may have holes, which must not be filled). All of them are in the file, so reading
// suffices, which maps sixteen at a time, or a huge page; writing takes a fault for each.
void Peer::populate(uint64_t begin, uint64_t end, uint64_t offset, uint64_t bytes) {
  const uint64_t first = offset / kPopulateWindow;
  const uint64_t last = bytes == 0 ? first : (offset + bytes - 1) / kPopulateWindow;
  for (uint64_t window = first; window <= last; ++window) {
    std::atomic<uint64_t>& word = populated_[window / 64];
    const uint64_t bit = uint64_t{1} << (window % 64);
    if (word.load(std::memory_order_relaxed) & bit) continue;
    word.fetch_or(bit, std::memory_order_relaxed);
    const uint64_t from = std::max(begin, window * kPopulateWindow) & ~uint64_t{4095};
    const uint64_t to = std::min(end, (window + 1) * kPopulateWindow);
    madvise(data_.load(std::memory_order_relaxed) + from, to - from, MADV_POPULATE_READ);
  }
}

Status Peer::map_data(int fd, uint64_t size) {
  std::lock_guard lock(mutex_);
  if (data_.load(std::memory_order_relaxed) != nullptr) return {};
  BE_ASSIGN_OR_RETURN(uint8_t * data, map_file(fd, size, "the data memory"));
  data_size_ = size;
  const uint64_t windows = size / kPopulateWindow + 1;
  populated_ = std::make_unique<std::atomic<uint64_t>[]>(windows / 64 + 1);
  data_.store(data, std::memory_order_release);
  return {};
}

Result<int> Peer::event_fd(uint64_t channel, UniqueFd fd) {
  std::lock_guard lock(mutex_);
  auto [place, is_new] = event_fds_.try_emplace(channel);
  if (is_new) place->second = std::move(fd);
  return place->second.get();
}

Result<PeerTable::Attached> PeerTable::attach(PeerOffer offer) {
  Attached result;
  {
    std::lock_guard lock(mutex_);
    std::erase_if(peers_, [](const auto& entry) { return entry.second.expired(); });
    std::weak_ptr<Peer>& known = peers_[offer.identity];
    result.peer = known.lock();
    if (!result.peer) {
      BE_ASSIGN_OR_RETURN(uint8_t * control,
                          map_file(offer.control.get(), offer.control_size, "the control memory"));
      BE_FAILPOINT("softnic.attach.control_mapped");
      const uint64_t regions_bytes = sizeof(RegionEntry) * kMaxRegions;
      if (offer.regions_offset % alignof(RegionEntry) != 0 ||
          !Peer::within(offer.regions_offset, regions_bytes, offer.control_size)) {
        munmap(control, offer.control_size);
        return error(Code::kProtocol, "softnic: the peer's region table is out of bounds");
      }
      result.peer.reset(new Peer(offer.identity, std::move(offer.pidfd), control,
                                 offer.control_size,
                                 reinterpret_cast<RegionEntry*>(control + offer.regions_offset)));
      known = result.peer;
    }
  }
  if (offer.data.valid()) {
    BE_RETURN_IF_ERROR(result.peer->map_data(offer.data.get(), offer.data_size));
    BE_FAILPOINT("softnic.attach.data_mapped");
  }
  BE_ASSIGN_OR_RETURN(result.event_fd,
                      result.peer->event_fd(offer.channel, std::move(offer.event)));
  return result;
}

}  // namespace be::softnic
