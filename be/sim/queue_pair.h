// A queue pair of the simulated RNIC: the RC core between packets.
//
//   post_send -> to_send --device's turn--> packets -> the peer's `inbound` -> memory, receives
//   reports   <- acknowledgement (count of work requests executed there) <----'
//
// Every work request is acknowledged, plain WRITEs too, as on a wire.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "be/sim/completion_queue.h"
#include "be/verbs/rc/queue_pair.h"

namespace be::sim {

class RnicDevice;

// A work request that is not yet completely on the wire.
struct PostedSend {
  ibv_wr_opcode opcode{};
  uint32_t bytes = 0;
  uint64_t remote_address = 0;
  uint32_t rkey = 0;
  uint32_t immediate = 0;
  std::vector<ibv_sge> sges;
  std::string inlined;  // instead of sges
  bool is_inline = false;
};

struct Packet {
  uint32_t from = 0;
  uint32_t to = 0;
  ibv_wr_opcode opcode{};
  bool first = false;
  bool last = false;
  uint32_t offset = 0;         // of these bytes in the message
  uint32_t message_bytes = 0;  // of the whole message
  uint64_t remote_address = 0;
  uint32_t rkey = 0;
  uint32_t immediate = 0;
  std::string bytes;            // Touch::kByNic, and inline data
  std::vector<ibv_sge> source;  // Touch::kByPeer: read when it arrives
  uint32_t length = 0;
};

struct SharedReceiveQueue : ibv_srq {
  SharedReceiveQueue(uint32_t entries, uint32_t max_sge) : ibv_srq{}, core(entries, max_sge) {}
  rc::ReceiveQueue core;
  uint32_t users = 0;
};

struct QueuePair : ibv_qp {
  explicit QueuePair(const rc::QueuePairConfig& config) : ibv_qp{}, core(config) {}

  RnicDevice* device = nullptr;
  CompletionQueue* send_queue = nullptr;
  CompletionQueue* recv_queue = nullptr;
  SharedReceiveQueue* shared = nullptr;  // null: receives of its own
  rc::QueuePair core;

  // Outbound.
  std::deque<PostedSend> to_send;
  uint32_t sent_of_front = 0;
  bool has_turn = false;  // in the device's list
  Time last_progress{};   // of acknowledgements
  bool timeout_pending = false;
  uint64_t write_bytes_out = 0;     // of WRITEs longer than a keepalive word, not acknowledged
  std::deque<uint64_t> writes_out;  // of each work request that is not acknowledged, its part

  // Inbound.
  std::deque<Packet> inbound;
  uint32_t executed = 0;  // the peer's work requests
  bool waits_for_receive = false;
  uint32_t rnr_attempts = 0;
  Time last_arrival{};
  Time last_acknowledgement{};

  // Connection.
  uint32_t remote = 0;
  uint8_t token[16] = {};
  ConnectOptions options;
  bool connected = false;  // RTS, and has told so
  bool last_told = false;  // kLastWqeReached

  // Retired: its user has let go of it, the peer has not confirmed.
  bool retired = false;
  QuiesceToken quiesce_token = 0;
  VirtualChannel* quiet_channel = nullptr;
};

}  // namespace be::sim
