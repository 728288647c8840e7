#include "be/base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <cstdlib>
#include <optional>

#include "be/base/fork.h"

namespace be {
namespace {

std::optional<LogLevel> level_of(std::string_view name) {
  if (name == "debug") return LogLevel::kDebug;
  if (name == "info") return LogLevel::kInfo;
  if (name == "warn") return LogLevel::kWarn;
  if (name == "error") return LogLevel::kError;
  if (name == "off") return LogLevel::kOff;
  return std::nullopt;
}

spdlog::level::level_enum spdlog_level(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarn:
      return spdlog::level::warn;
    default:
      return spdlog::level::err;
  }
}

LogSink& log_sink() {
  static LogSink* const kSink = new LogSink();
  return *kSink;
}

// Never destroyed: threads may log while the process ends.
spdlog::logger& logger() {
  static spdlog::logger* const kLogger = [] {
    auto* made =
        new spdlog::logger("byteexpress", std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
    made->set_level(spdlog::level::debug);  // filtered before it comes here
    made->set_pattern("%H:%M:%S.%f %^%l%$ [%P:%t] %v");
    return made;
  }();
  return *kLogger;
}

// Before main: the first of the locks that are kept across forks, for it is the innermost; and no
// child may find that another thread was just making one of these.
[[maybe_unused]] const bool kForkSafe = [] {
  log_sink();
  logger();
  keep_across_forks(spdlog::details::console_mutex::mutex());
  return true;
}();

// Before main, so that programs need not know of it.
[[maybe_unused]] const bool kEnvironmentRead = [] {
  const char* name = std::getenv("BE_LOG");
  if (name == nullptr || *name == '\0') return false;
  const Status status = set_log_level(name);
  if (!status.ok()) log_warn("environment variable BE_LOG: {}", status.message());
  return status.ok();
}();

}  // namespace

Status set_log_level(std::string_view name) {
  const std::optional<LogLevel> level = level_of(name);
  if (!level) {
    return error(Code::kInvalidArgument, "log level '{}' is none of debug, info, warn, error, off",
                 name);
  }
  log_internal::threshold.store(*level, std::memory_order_relaxed);
  return {};
}

void set_log_sink(LogSink sink) { log_sink() = std::move(sink); }

namespace log_internal {

constinit std::atomic<LogLevel> threshold{LogLevel::kWarn};

void write(LogLevel level, fmt::string_view format, fmt::format_args args) {
  fmt::memory_buffer line;
  fmt::vformat_to(fmt::appender(line), format, args);
  if (log_sink()) return log_sink()(level, {line.data(), line.size()});
  logger().log(spdlog_level(level), spdlog::string_view_t(line.data(), line.size()));
}

}  // namespace log_internal
}  // namespace be
