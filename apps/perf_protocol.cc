#include "apps/perf_protocol.h"

#include <cstring>
#include <utility>

#include "be/base/byte_io.h"

namespace be::apps {
namespace {

constexpr uint32_t kMagic = 0x46505842;  // "BXPF"
constexpr size_t kMaxText = 200;
constexpr size_t kMaxFrame = 1024;

enum class Kind : uint8_t { kGreeting = 1, kWelcome = 2, kReportRequest = 3, kReport = 4 };

template <typename WriteBody>
std::vector<uint8_t> encode(Kind kind, const WriteBody& write_body) {
  std::vector<uint8_t> frame(kMaxFrame);
  ByteWriter out(frame);
  out.write_u32(kMagic);
  out.write_u16(kPerfVersion);
  out.write_u8(static_cast<uint8_t>(kind));
  write_body(out);
  frame.resize(out.size());
  return frame;
}

void write_text(ByteWriter& out, std::string_view text) {
  out.write_string(text.substr(0, kMaxText));
}

Status begin(ByteReader& in, Kind wanted) {
  if (in.read_u32() != kMagic) {
    return Status(Code::kProtocol, "the peer does not speak the protocol of byteexpress perf");
  }
  const uint16_t version = in.read_u16();
  if (in.ok() && version != kPerfVersion) {
    return error(Code::kProtocol, "the peer speaks version {} of byteexpress perf, we speak {}",
                 version, kPerfVersion);
  }
  const uint8_t kind = in.read_u8();
  if (!in.ok()) return Status(Code::kProtocol, "truncated perf frame");
  if (kind != static_cast<uint8_t>(wanted)) {
    return error(Code::kProtocol, "perf frame of kind {} where {} is due", kind,
                 static_cast<int>(wanted));
  }
  return {};
}

Status end(const ByteReader& in, std::string_view what) {
  if (in.finished()) return {};
  return error(Code::kProtocol, "malformed {} of byteexpress perf", what);
}

}  // namespace

std::string_view perf_test_name(PerfTest test) {
  switch (test) {
    case PerfTest::kLatency:
      return "latency";
    case PerfTest::kBandwidth:
      return "bandwidth";
    case PerfTest::kRate:
      return "rate";
  }
  return "unknown test";
}

std::vector<uint8_t> encode_greeting(const PerfGreeting& greeting) {
  return encode(Kind::kGreeting, [&](ByteWriter& out) {
    out.write_u8(static_cast<uint8_t>(greeting.role));
    out.write_u8(static_cast<uint8_t>(greeting.test));
    out.write_u8(greeting.touch ? 1 : 0);
    out.write_u64(greeting.session);
    out.write_u32(greeting.reply_bytes);
  });
}

Result<PerfGreeting> decode_greeting(std::span<const uint8_t> frame) {
  ByteReader in(frame);
  BE_RETURN_IF_ERROR(begin(in, Kind::kGreeting));
  const uint8_t role = in.read_u8();
  const uint8_t test = in.read_u8();
  const uint8_t touch = in.read_u8();
  PerfGreeting greeting;
  greeting.session = in.read_u64();
  greeting.reply_bytes = in.read_u32();
  BE_RETURN_IF_ERROR(end(in, "greeting"));
  if (role > static_cast<uint8_t>(PerfGreeting::Role::kData)) {
    return error(Code::kProtocol, "role {} in a greeting of byteexpress perf", role);
  }
  if (test > static_cast<uint8_t>(PerfTest::kRate)) {
    return error(Code::kProtocol, "test {} in a greeting of byteexpress perf", test);
  }
  if (touch > 1) return error(Code::kProtocol, "touch {} in a greeting of byteexpress perf", touch);
  if (greeting.reply_bytes < 1 || greeting.reply_bytes > kMaxPerfReplyBytes) {
    return error(Code::kProtocol, "replies of {} bytes are asked for, 1 to {} can be had",
                 greeting.reply_bytes, kMaxPerfReplyBytes);
  }
  greeting.role = static_cast<PerfGreeting::Role>(role);
  greeting.test = static_cast<PerfTest>(test);
  greeting.touch = touch == 1;
  return greeting;
}

std::vector<uint8_t> encode_welcome(const Status& status) {
  return encode(Kind::kWelcome, [&](ByteWriter& out) {
    out.write_u8(static_cast<uint8_t>(status.code()));
    write_text(out, status.message());
  });
}

Status decode_welcome(std::span<const uint8_t> frame) {
  ByteReader in(frame);
  BE_RETURN_IF_ERROR(begin(in, Kind::kWelcome));
  const uint8_t code = in.read_u8();
  const std::string_view text = in.read_string(kMaxText);
  BE_RETURN_IF_ERROR(end(in, "welcome"));
  if (code == static_cast<uint8_t>(Code::kOk)) return {};
  if (code > static_cast<uint8_t>(Code::kInternal)) {
    return error(Code::kProtocol, "code {} in a welcome of byteexpress perf", code);
  }
  return Status(static_cast<Code>(code), fmt::format("refused by the server: {}", text));
}

std::vector<uint8_t> encode_report_request() {
  return encode(Kind::kReportRequest, [](ByteWriter&) {});
}

Status decode_report_request(std::span<const uint8_t> frame) {
  ByteReader in(frame);
  BE_RETURN_IF_ERROR(begin(in, Kind::kReportRequest));
  return end(in, "request for a report");
}

std::vector<uint8_t> encode_report(const PerfReport& report) {
  return encode(Kind::kReport, [&](ByteWriter& out) {
    out.write_i64(report.cpu.user.count());
    out.write_i64(report.cpu.system.count());
    out.write_u64(report.messages);
    out.write_u64(report.bytes);
    out.write_u64(report.live_allocations);
    out.write_u64(report.registered_bytes);
    out.write_u64(report.peak_registered_bytes);
    out.write_u64(report.registrations);
    out.write_u32(report.sessions);
    out.write_u32(report.io_threads);
    out.write_u8(static_cast<uint8_t>(report.transport));
    write_text(out, report.device);
    write_text(out, report.host);
  });
}

Result<PerfReport> decode_report(std::span<const uint8_t> frame) {
  ByteReader in(frame);
  BE_RETURN_IF_ERROR(begin(in, Kind::kReport));
  PerfReport report;
  report.cpu.user = Nanoseconds(in.read_i64());
  report.cpu.system = Nanoseconds(in.read_i64());
  report.messages = in.read_u64();
  report.bytes = in.read_u64();
  report.live_allocations = in.read_u64();
  report.registered_bytes = in.read_u64();
  report.peak_registered_bytes = in.read_u64();
  report.registrations = in.read_u64();
  report.sessions = in.read_u32();
  report.io_threads = in.read_u32();
  const uint8_t transport = in.read_u8();
  report.device = in.read_string(kMaxText);
  report.host = in.read_string(kMaxText);
  BE_RETURN_IF_ERROR(end(in, "report"));
  if (report.cpu.user < 0ns || report.cpu.system < 0ns) {
    return Status(Code::kProtocol, "negative CPU time in a report of byteexpress perf");
  }
  if (transport > static_cast<uint8_t>(TransportKind::kSimulated)) {
    return error(Code::kProtocol, "transport {} in a report of byteexpress perf", transport);
  }
  report.transport = static_cast<TransportKind>(transport);
  return report;
}

Status send_frame(RegisteredPool& pool, Socket& socket, std::span<const uint8_t> frame) {
  BE_ASSIGN_OR_RETURN(Buffer buffer, pool.allocate_buffer(frame.size()));
  std::memcpy(buffer.data(), frame.data(), frame.size());
  Message message(std::move(buffer));
  return socket.send(message, 0);
}

}  // namespace be::apps
