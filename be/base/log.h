// Logging: one line on standard error for what a person should know of.
//
//   log_warn("engine to {}: {}", peer, status.to_string());
//
// set_log_sink sends the lines elsewhere. Levels are debug, info, warn, error and off; the default
// is warn, changed by the environment variable BE_LOG or by set_log_level. A message below the
// level costs one comparison and is not formatted. Any thread. Never fails: what cannot be written
// is lost. spdlog does the work and is not seen outside log.cc.
#pragma once

#include <fmt/format.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <string_view>
#include <utility>

#include "be/base/status.h"

namespace be {

enum class LogLevel : uint8_t { kDebug, kInfo, kWarn, kError, kOff };

// "debug", "info", "warn", "error" or "off"; any other name changes nothing and is an error.
Status set_log_level(std::string_view name);

// Where lines go instead of standard error; empty: there again. Called by any thread that logs.
// Before other threads log, or when they have ended.
using LogSink = std::function<void(LogLevel level, std::string_view line)>;
void set_log_sink(LogSink sink);

namespace log_internal {

extern std::atomic<LogLevel> threshold;
void write(LogLevel level, fmt::string_view format, fmt::format_args args);

template <typename... Args>
void log(LogLevel level, fmt::format_string<Args...> format, Args&&... args) {
  if (level < threshold.load(std::memory_order_relaxed)) return;
  write(level, format, fmt::make_format_args(args...));
}

}  // namespace log_internal

template <typename... Args>
void log_debug(fmt::format_string<Args...> format, Args&&... args) {
  log_internal::log(LogLevel::kDebug, format, std::forward<Args>(args)...);
}

template <typename... Args>
void log_info(fmt::format_string<Args...> format, Args&&... args) {
  log_internal::log(LogLevel::kInfo, format, std::forward<Args>(args)...);
}

template <typename... Args>
void log_warn(fmt::format_string<Args...> format, Args&&... args) {
  log_internal::log(LogLevel::kWarn, format, std::forward<Args>(args)...);
}

template <typename... Args>
void log_error(fmt::format_string<Args...> format, Args&&... args) {
  log_internal::log(LogLevel::kError, format, std::forward<Args>(args)...);
}

}  // namespace be
