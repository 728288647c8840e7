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
  if (cpu_operations_ > 0) {
    const auto operations = static_cast<double>(cpu_operations_);
    figures["cpu_us_per_op"] = us(static_cast<double>(cpu_.total().count())) / operations;
    figures["cpu_user_us_per_op"] = us(static_cast<double>(cpu_.user.count())) / operations;
    figures["cpu_system_us_per_op"] = us(static_cast<double>(cpu_.system.count())) / operations;
  }
  return figures;
}

}  // namespace be::apps
