#include "be/engine/engine_options.h"

#include <algorithm>
#include <string_view>

namespace be {
namespace {

constexpr uint32_t kMaxDepth = 1u << 16;
constexpr uint32_t kLeastCredits = 4;  // that an engine on an SRQ always has, one for replies
constexpr uint32_t kMaxCancels = 64;   // counted modulo 256 on the wire
constexpr uint32_t kMinEager = 128;    // engine header, Message::header and something
constexpr uint32_t kMaxEager = 1u << 20;
constexpr uint32_t kMinFragment = 256;  // the first holds both headers
constexpr uint32_t kMaxFragment = 1u << 30;
constexpr uint32_t kMaxMessage = 1u << 31;
constexpr Nanoseconds kMinInterval = 1ms;
constexpr Nanoseconds kMaxInterval = std::chrono::hours(1);

// Of credits, grants and WriteRequests replies own at least one, and requests need one too. Data
// leaves one slot of the send queue to control frames.
constexpr uint32_t kLeastForBoth = 2;
constexpr std::string_view kOneForReplies = ": one is for replies alone";
constexpr std::string_view kOneForControl = ": one is for control frames alone";

Status check_range(Code code, std::string_view name, uint64_t value, uint64_t low, uint64_t high,
                   std::string_view why = "") {
  if (value >= low && value <= high) return {};
  return error(code, "{} is {}, must be between {} and {}{}", name, value, low, high, why);
}

}  // namespace

Status EngineOptions::check() const {
  const auto in = [](std::string_view name, uint64_t value, uint64_t low, uint64_t high,
                     std::string_view why = "") {
    return check_range(Code::kInvalidArgument, name, value, low, high, why);
  };
  const auto for_both = [&in](std::string_view name, uint64_t value) {
    return in(name, value, kLeastForBoth, kMaxDepth, kOneForReplies);
  };
  BE_RETURN_IF_ERROR(in("engine.send_queue_depth", send_queue_depth, 2, kMaxDepth, kOneForControl));
  BE_RETURN_IF_ERROR(for_both("engine.recv_queue_depth", recv_queue_depth));
  BE_RETURN_IF_ERROR(for_both("engine.grants", grants));
  BE_RETURN_IF_ERROR(for_both("engine.write_requests", write_requests));
  BE_RETURN_IF_ERROR(in("engine.grant_cancels", grant_cancels, 1, kMaxCancels));
  BE_RETURN_IF_ERROR(in("engine.eager_bytes", eager_bytes, kMinEager, kMaxEager));
  BE_RETURN_IF_ERROR(in("engine.max_message_bytes", max_message_bytes, 1, kMaxMessage));
  BE_RETURN_IF_ERROR(in("engine.grant_budget_bytes", grant_budget_bytes, 1, UINT32_MAX));
  if (shared_receives != 0) {
    BE_RETURN_IF_ERROR(in("engine.shared_receives", shared_receives,
                          reserved_receives(*this) + ::be::initial_credits(*this), kMaxDepth,
                          ": one engine must fit; 0: none are shared"));
  }
  if (fragment_bytes != 0) {
    BE_RETURN_IF_ERROR(in("engine.fragment_bytes", fragment_bytes, kMinFragment, kMaxFragment));
  }
  if (send_window_bytes != 0) {
    const uint32_t least = fragment_bytes != 0 ? fragment_bytes : kMinFragment;
    if (send_window_bytes < least) {
      return error(Code::kInvalidArgument,
                   "engine.send_window_bytes is {}: one fragment ({}) must fit", send_window_bytes,
                   least);
    }
  }
  if (keepalive_interval < kMinInterval || keepalive_interval > kMaxInterval) {
    return error(Code::kInvalidArgument, "engine.keepalive_interval must be between 1 ms and 1 h");
  }
  if (keepalive_timeout < keepalive_interval || keepalive_timeout > 1000 * kMaxInterval) {
    return error(Code::kInvalidArgument,
                 "engine.keepalive_timeout must be between engine.keepalive_interval and 1000 h");
  }
  return {};
}

uint32_t initial_credits(const EngineOptions& options) {
  return options.shared_receives == 0 ? options.recv_queue_depth
                                      : std::min(options.recv_queue_depth, kLeastCredits);
}

Status EngineTerms::check() const {
  const auto in = [](std::string_view name, uint64_t value, uint64_t low, uint64_t high) {
    return check_range(Code::kProtocol, name, value, low, high);
  };
  BE_RETURN_IF_ERROR(in("the peer's recv_queue_depth", recv_queue_depth, kLeastForBoth, kMaxDepth));
  BE_RETURN_IF_ERROR(in("the peer's initial_credits", initial_credits,
                        shared_receives ? kLeastForBoth : recv_queue_depth, recv_queue_depth));
  BE_RETURN_IF_ERROR(in("the peer's grants", grants, kLeastForBoth, kMaxDepth));
  BE_RETURN_IF_ERROR(in("the peer's write_requests", write_requests, kLeastForBoth, kMaxDepth));
  BE_RETURN_IF_ERROR(in("the peer's grant_cancels", grant_cancels, 1, kMaxCancels));
  BE_RETURN_IF_ERROR(in("the peer's eager_bytes", eager_bytes, kMinEager, kMaxEager));
  BE_RETURN_IF_ERROR(in("the peer's max_message_bytes", max_message_bytes, 1, kMaxMessage));
  if (keepalive_address == 0 || keepalive_address % sizeof(uint64_t) != 0) {
    return error(Code::kProtocol, "the peer's keepalive_address is {:#x}", keepalive_address);
  }
  if (keepalive_interval < kMinInterval || keepalive_interval > kMaxInterval) {
    return error(Code::kProtocol, "the peer's keepalive_interval is {} ns",
                 keepalive_interval.count());
  }
  return {};
}

}  // namespace be
