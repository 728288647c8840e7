// What the two ends of `byteexpress perf` say to each other, beside the messages that are measured.
//
//   client, on each socket              server
//   Greeting (role, session, ...)  ->
//                                  <-   Welcome: ok, or why not (then it closes the socket)
//   role kData: any message        ->
//                                  <-   reply of Greeting::reply_bytes, one for each, in order
//   role kControl: ReportRequest   ->
//                                  <-   Report
//
// All sockets of one client name the same session, which is made by its control socket; Report
// counts what its data sockets brought. Magic and version come first in every frame and stay
// there in all versions.
//
// Pure, but for send_frame. The decoders take hostile bytes: every field is checked, a refusal is
// kProtocol and names the field; a frame of another version names both.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "be/base/cpu_time.h"
#include "be/base/status.h"
#include "be/memory/registered_pool.h"
#include "be/transport/socket.h"

namespace be::apps {

inline constexpr uint16_t kPerfVersion = 1;
inline constexpr uint32_t kMaxPerfReplyBytes = 1u << 20;

enum class PerfTest : uint8_t { kLatency = 0, kBandwidth = 1, kRate = 2 };
std::string_view perf_test_name(PerfTest test);

struct PerfGreeting {
  enum class Role : uint8_t { kControl = 0, kData = 1 };
  Role role = Role::kControl;
  PerfTest test = PerfTest::kLatency;
  bool touch = true;          // the server reads what comes and writes its replies anew
  uint64_t session = 0;       // drawn by the client
  uint32_t reply_bytes = 32;  // 1 to kMaxPerfReplyBytes
};

// Of the server, since it was started, but for what says otherwise.
struct PerfReport {
  CpuTime cpu;                    // of the whole process
  uint64_t messages = 0;          // of this session
  uint64_t bytes = 0;             // of this session
  uint64_t live_allocations = 0;  // of its pool
  uint64_t registered_bytes = 0;  //
  uint64_t peak_registered_bytes = 0;
  uint64_t registrations = 0;
  uint32_t sessions = 0;  // now, this one included: they share `cpu`
  uint32_t io_threads = 0;
  TransportKind transport = TransportKind::kTcp;  // of the control socket
  std::string device;                             // device_label() there
  std::string host;
};

std::vector<uint8_t> encode_greeting(const PerfGreeting& greeting);
std::vector<uint8_t> encode_welcome(const Status& status);
std::vector<uint8_t> encode_report_request();
std::vector<uint8_t> encode_report(const PerfReport& report);

Result<PerfGreeting> decode_greeting(std::span<const uint8_t> frame);
Status decode_welcome(std::span<const uint8_t> frame);  // what the server said, or kProtocol
Status decode_report_request(std::span<const uint8_t> frame);
Result<PerfReport> decode_report(std::span<const uint8_t> frame);

// In a Buffer of `pool`.
Status send_frame(RegisteredPool& pool, Socket& socket, std::span<const uint8_t> frame);

}  // namespace be::apps
