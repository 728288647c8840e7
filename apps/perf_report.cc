#include "apps/perf_report.h"

#include <fmt/format.h>

#include "be/base/units.h"

namespace be::apps {
namespace {

std::string count_of(uint64_t count, std::string_view what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

std::string window_text(uint32_t bytes) { return bytes == 0 ? "off" : format_bytes(bytes); }

std::string heading(const PerfPlan& plan, const NodeOptions& options, const PerfResult& result) {
  std::string text = fmt::format("{} over {}, to {} ({})\n", perf_test_name(plan.test),
                                 result.device, plan.server, result.server.host);
  text += fmt::format("{}, {}, {} outstanding on each; replies of {} B, payloads {}\n",
                      count_of(options.io_threads, "thread"),
                      count_of(plan.sockets, "socket") + " on each", plan.outstanding,
                      plan.reply_bytes, plan.touch ? "touched" : "not touched");
  if (plan.background > 0) {
    text += fmt::format("beside {} of {} messages on each engine\n",
                        count_of(plan.background, "flow"), format_bytes(plan.background_bytes));
  }
  if (result.transport != TransportKind::kTcp) {
    text += fmt::format("fragment {}, window {}, send queue {}, receive queue {}\n",
                        format_bytes(result.fragment_bytes),
                        window_text(options.engine.send_window_bytes),
                        options.engine.send_queue_depth, options.engine.recv_queue_depth);
  }
  text += fmt::format("median of {} of {}, after {} of warm-up each\n",
                      count_of(plan.repetitions, "repetition"), format_duration(plan.duration),
                      format_duration(plan.warmup));
  if (result.interrupted) text += "interrupted: what follows was measured before\n";
  if (result.sharers > 1) {
    text += fmt::format("the server had up to {} clients at once: its CPU time is all theirs\n",
                        result.sharers);
  }
  return text;
}

nlohmann::ordered_json plan_json(const PerfPlan& plan, const NodeOptions& options) {
  return {
      {"server", plan.server},
      {"threads", options.io_threads},
      {"sockets_per_thread", plan.sockets},
      {"outstanding_per_socket", plan.outstanding},
      {"background_flows_per_thread", plan.background},
      {"background_bytes", plan.background_bytes},
      {"duration_seconds", std::chrono::duration<double>(plan.duration).count()},
      {"warmup_seconds", std::chrono::duration<double>(plan.warmup).count()},
      {"repetitions", plan.repetitions},
      {"reply_bytes", plan.reply_bytes},
      {"touch", plan.touch},
  };
}

nlohmann::ordered_json server_json(const PerfReport& server) {
  return {
      {"host", server.host},
      {"transport", transport_name(server.transport)},
      {"device", server.device},
      {"io_threads", server.io_threads},
      {"live_allocations", server.live_allocations},
      {"registered_bytes", server.registered_bytes},
      {"peak_registered_bytes", server.peak_registered_bytes},
      {"registrations", server.registrations},
  };
}

}  // namespace

std::string perf_table(const PerfPlan& plan, const NodeOptions& options, const PerfResult& result) {
  std::string text = heading(plan, options, result);
  text += fmt::format("\n{:>10} {:>9} {:>9} {:>9} {:>9} {:>11} {:>7}  {:>15} {:>8}{}\n", "", "mean",
                      "P50", "P99", "max", "", "", "CPU us/message", "CPU",
                      plan.background > 0 ? "   beside" : "");
  text += fmt::format("{:>10} {:>9} {:>9} {:>9} {:>9} {:>11} {:>7}  {:>7} {:>7} {:>8}{}\n", "bytes",
                      "us", "us", "us", "us", "messages/s", "GB/s", "client", "server", "s/GB",
                      plan.background > 0 ? "     GB/s" : "");
  for (const PerfResult::Size& size : result.sizes) {
    const PerfFigures median = median_of(size.repetitions);
    text += fmt::format(
        "{:>10} {:>9.2f} {:>9.2f} {:>9.2f} {:>9.1f} {:>11.0f} {:>7.3f}  {:>7.2f} {:>7.2f} {:>8.3f}",
        size.bytes, median.mean_us, median.p50_us, median.p99_us, median.max_us,
        median.messages_per_second, median.gigabytes_per_second, median.client_cpu_us_per_message,
        median.server_cpu_us_per_message, median.cpu_seconds_per_gigabyte);
    if (plan.background > 0)
      text += fmt::format(" {:>8.3f}", median.background_gigabytes_per_second);
    text += "\n";
  }
  return text;
}

nlohmann::ordered_json perf_json(const PerfPlan& plan, const NodeOptions& options,
                                 const PerfResult& result, const std::string& settings) {
  nlohmann::ordered_json json = {
      {"test", perf_test_name(plan.test)},
      {"transport", transport_name(result.transport)},
      {"device", result.device},
      {"interrupted", result.interrupted},
      {"most_clients_at_once", result.sharers},
      {"plan", plan_json(plan, options)},
      {"in_effect",
       {{"fragment_bytes", result.fragment_bytes},
        {"send_window_bytes", options.engine.send_window_bytes},
        {"send_queue_depth", options.engine.send_queue_depth},
        {"recv_queue_depth", options.engine.recv_queue_depth}}},
      {"client", {{"host", result.host}, {"peak_registered_bytes", result.peak_registered_bytes}}},
      {"server", server_json(result.server)},
      {"settings", settings},
  };
  json["sizes"] = nlohmann::ordered_json::array();
  for (const PerfResult::Size& size : result.sizes) {
    nlohmann::ordered_json entry = {{"bytes", size.bytes},
                                    {"median", to_json(median_of(size.repetitions))}};
    for (const PerfFigures& one : size.repetitions) entry["repetitions"].push_back(to_json(one));
    json["sizes"].push_back(std::move(entry));
  }
  return json;
}

}  // namespace be::apps
