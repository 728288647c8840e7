#include "apps/operation_meter.h"

#include <algorithm>

namespace be::apps {

nlohmann::json OperationMeter::figures() const {
  const auto us = [](double ns) { return ns / 1000; };
  const double count = std::max(1.0, static_cast<double>(latency_ns_.count()));
  nlohmann::json figures = {
      {"count", latency_ns_.count()},
      {"mean_us", us(latency_ns_.mean())},
      {"p50_us", us(static_cast<double>(latency_ns_.percentile(0.5)))},
      {"p99_us", us(static_cast<double>(latency_ns_.percentile(0.99)))},
      {"max_us", us(static_cast<double>(latency_ns_.max()))},
      {"bytes_per_op", static_cast<double>(bytes_) / count},
  };
  if (cpu_.total() > 0ns) {
    figures["cpu_us_per_op"] = us(static_cast<double>(cpu_.total().count())) / count;
    figures["cpu_user_us_per_op"] = us(static_cast<double>(cpu_.user.count())) / count;
    figures["cpu_system_us_per_op"] = us(static_cast<double>(cpu_.system.count())) / count;
  }
  return figures;
}

}  // namespace be::apps
