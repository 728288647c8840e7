// What two processes see of each other: the layout of a device's control memory.
//
//   control memfd:  [ doorbells | queue pair blocks | regions | rings ... | staging ]
//
//   who writes            | what
//   owner of the memory   | RegionEntry, QueuePairBlock::wanted, Doorbell::armed
//   peer of the QP        | its ring's slots, QueuePairBlock::acknowledged, Doorbell::ready bits
//
// So a process polls only its own control memory, and only WRITEs and fetches of large SENDs
// reach further. Everything read here may have been written by a peer's bug: it is copied
// once, checked, then used.
//
// Order: a slot's bytes, then `sequence` (release). After publishing anything a writer makes a
// full fence, sets the ready bit if it is clear, reads `armed`. A sleeper sets `armed`, makes a
// full fence, looks once more at what it would poll. One of both sees the other. A writer never
// changes `armed`: one that is stopped before it has woken the sleeper must not keep the others
// from doing so.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace be::softnic {

inline constexpr uint32_t kMaxQueuePairs = 4096;
inline constexpr uint32_t kMaxCompletionQueues = 256;
inline constexpr uint32_t kMaxQueueDepth = 4096;
inline constexpr uint32_t kMaxRegions = 1u << 16;
inline constexpr uint32_t kMaxCompletions = 1u << 20;

struct SlotHeader {
  uint32_t acknowledged;  // messages of the other direction that the writer has matched
  uint32_t byte_length;
  uint32_t imm_data;
  uint8_t opcode;  // SlotOpcode
  uint8_t flags;   // kSlot*
  uint8_t rnr_retry;
  uint8_t pair_count;  // 0: the payload is here
};

enum SlotOpcode : uint8_t { kSlotSend = 1, kSlotSendWithImm = 2, kSlotWriteWithImm = 3 };
inline constexpr uint8_t kSlotSignalled = 1;  // its acknowledgement makes a completion
inline constexpr uint8_t kSlotSolicited = 2;

inline constexpr size_t kSlotBytes = 256;
inline constexpr size_t kSlotPayload = kSlotBytes - sizeof(uint64_t) - sizeof(SlotHeader);

// One part of a SEND that does not fit the slot: bytes of the sender's memory.
struct SlotPair {
  uint64_t offset;
  uint32_t length;
  uint32_t file;  // kDataFile or kControlFile (staged)
};
enum : uint32_t { kDataFile = 0, kControlFile = 1 };
inline constexpr uint32_t kMaxPairs = kSlotPayload / sizeof(SlotPair);

struct alignas(64) Slot {
  std::atomic<uint32_t> sequence;  // message count: 1 for the first; anything else: not ready
  uint32_t unused;
  SlotHeader header;
  uint8_t payload[kSlotPayload];
};
static_assert(sizeof(Slot) == kSlotBytes);

struct alignas(128) QueuePairBlock {
  // Low half: messages matched by the peer; high half: ibv_wc_status of its refusal of the next.
  std::atomic<uint64_t> acknowledged;
  // An acknowledgement that passes this count is awaited by a sleeper, though the message was
  // not signalled (a signalled WRITE stands behind it).
  alignas(64) std::atomic<uint32_t> wanted;
};

// Doorbell::armed is 0, or counts the armings in the bits above the kind: a writer wakes the owner
// once for each.
enum ArmedFor : uint8_t { kNotArmed = 0, kArmed = 1, kArmedForSolicited = 2 };
inline constexpr ArmedFor armed_for(uint64_t armed) { return static_cast<ArmedFor>(armed & 3); }
inline constexpr uint64_t arming(uint64_t number, ArmedFor kind) { return number << 2 | kind; }

// One per completion queue. A QP's bit is its place among the QPs of that CQ.
struct alignas(64) Doorbell {
  std::atomic<uint64_t> armed;
  std::atomic<uint64_t> ready[kMaxQueuePairs / 64];
};

struct RegionEntry {
  std::atomic<uint32_t> key;  // 0: none, or private memory; see rc/memory_key.h
  std::atomic<uint32_t> access;
  std::atomic<uint64_t> address;
  std::atomic<uint64_t> length;
  std::atomic<uint64_t> offset;  // in the data memfd
};

static_assert(std::atomic<uint64_t>::is_always_lock_free);

}  // namespace be::softnic
