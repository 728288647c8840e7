#include "apps/perf_client.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "apps/host_name.h"
#include "apps/perf_worker.h"
#include "be/engine/engine.h"

namespace be::apps {
namespace {

using Workers = std::vector<std::unique_ptr<PerfWorker>>;

// On the threads of all workers at once; the first failure.
template <typename Job>
Status on_all(const Workers& workers, const Job& job) {
  std::vector<Status> statuses(workers.size());
  std::vector<std::unique_ptr<Gate>> gates;
  for (size_t i = 0; i < workers.size(); ++i) {
    gates.push_back(kernel_world().executor().make_gate());
    workers[i]->thread().submit([&, i] {
      statuses[i] = job(*workers[i], i);
      gates[i]->open();
    });
  }
  for (const auto& gate : gates) gate->wait();
  for (const Status& status : statuses) BE_RETURN_IF_ERROR(status);
  return {};
}

class Sweep {
 public:
  Sweep(const NodeOptions& options, const PerfPlan& plan, EndSignals& signals)
      : options_(options), plan_(plan), signals_(signals) {}

  Status connect() {
    BE_ASSIGN_OR_RETURN(const Address server, kernel_world().network().resolve(plan_.server));
    for (size_t i = 0; i < options_.io_threads; ++i) {
      BE_ASSIGN_OR_RETURN(auto worker, PerfWorker::create(options_, i, plan_, signals_));
      workers_.push_back(std::move(worker));
    }
    const uint64_t session = kernel_world().random_u64();
    BE_RETURN_IF_ERROR(
        on_leader([&](PerfWorker& leader) { return leader.open_session(server, session); }));
    return on_all(workers_,
                  [&](PerfWorker& worker, size_t) { return worker.connect(server, session); });
  }

  // Nothing if a signal came before there was anything to measure.
  Result<std::optional<PerfSample>> measure(uint32_t bytes) {
    if (plan_.warmup > 0ns) BE_RETURN_IF_ERROR(run(bytes, plan_.warmup).status());
    if (signals_.arrived()) return std::optional<PerfSample>();
    BE_ASSIGN_OR_RETURN(const PerfReport before, report());
    const CpuTime client_before = this_process_cpu_time();
    BE_ASSIGN_OR_RETURN(const PerfWorker::Run run, this->run(bytes, plan_.duration));
    PerfSample sample;
    sample.client_cpu = this_process_cpu_time() - client_before;
    BE_ASSIGN_OR_RETURN(last_report_, report());
    sharers_ = std::max({sharers_, before.sessions, last_report_.sessions});
    sample.server_cpu = last_report_.cpu - before.cpu;
    sample.bytes = bytes;
    sample.answered = run.answered;
    sample.elapsed = run.end - run.begin;
    sample.times_ns = run.times_ns;
    sample.background_bytes = run.background_answered * plan_.background_bytes;
    BE_RETURN_IF_ERROR(compare(sample, run, before));
    if (sample.answered == 0 || sample.elapsed <= 0ns) return std::optional<PerfSample>();
    return std::optional<PerfSample>(sample);
  }

  void describe(PerfResult& result) const {
    result.server = last_report_;
    result.sharers = sharers_;
    result.transport = workers_.front()->transport();
    result.device = workers_.front()->device();
    result.host = host_name();
    if (result.transport != TransportKind::kTcp) {
      result.fragment_bytes =
          Engine::fragment_bytes(options_.engine, static_cast<DeviceKind>(result.transport));
    }
    for (const auto& worker : workers_) {
      result.peak_registered_bytes += worker->node().pool().stats().peak_registered_bytes;
    }
  }

 private:
  template <typename Job>
  Status on_leader(const Job& job) {
    return on_all(workers_, [&](PerfWorker& worker, size_t index) {
      return index == 0 ? job(worker) : ok_status();
    });
  }

  Result<PerfReport> report() {
    PerfReport report;
    BE_RETURN_IF_ERROR(on_leader([&](PerfWorker& leader) -> Status {
      BE_ASSIGN_OR_RETURN(report, leader.ask_report());
      return {};
    }));
    return report;
  }

  Result<PerfWorker::Run> run(uint32_t bytes, Nanoseconds duration) {
    std::vector<PerfWorker::Run> runs(workers_.size());
    BE_RETURN_IF_ERROR(on_all(workers_, [&](PerfWorker& worker, size_t index) -> Status {
      BE_ASSIGN_OR_RETURN(runs[index], worker.run(bytes, duration));
      return {};
    }));
    PerfWorker::Run sum = runs.front();
    for (size_t i = 1; i < runs.size(); ++i) {
      sum.begin = std::min(sum.begin, runs[i].begin);
      sum.end = std::max(sum.end, runs[i].end);
      sum.answered += runs[i].answered;
      sum.background_answered += runs[i].background_answered;
      sum.times_ns.add(runs[i].times_ns);
    }
    return sum;
  }

  Status compare(const PerfSample& sample, const PerfWorker::Run& run,
                 const PerfReport& before) const {
    const uint64_t messages = run.answered + run.background_answered;
    const uint64_t bytes = run.answered * sample.bytes + sample.background_bytes;
    const uint64_t server_messages = last_report_.messages - before.messages;
    const uint64_t server_bytes = last_report_.bytes - before.bytes;
    if (messages == server_messages && bytes == server_bytes) return {};
    return error(Code::kDataLoss,
                 "{} messages of {} bytes were answered, the server counted {} of {} bytes",
                 messages, bytes, server_messages, server_bytes);
  }

  const NodeOptions& options_;
  const PerfPlan& plan_;
  EndSignals& signals_;
  Workers workers_;
  PerfReport last_report_;
  uint32_t sharers_ = 1;
};

}  // namespace

Result<PerfResult> run_perf_client(
    const NodeOptions& options, const PerfPlan& plan, EndSignals& signals,
    const std::function<void(double, const std::string&)>& progress) {
  PerfResult result;
  for (const uint32_t bytes : plan.sizes) result.sizes.push_back({bytes, {}});
  Sweep sweep(options, plan, signals);
  BE_RETURN_IF_ERROR(sweep.connect());
  const double steps =
      static_cast<double>(plan.repetitions) * static_cast<double>(plan.sizes.size());
  double step = 0;
  for (uint32_t repetition = 1; repetition <= plan.repetitions; ++repetition) {
    for (PerfResult::Size& size : result.sizes) {
      if (signals.arrived()) break;
      progress(step++ / steps, fmt::format("{} bytes, repetition {} of {}", size.bytes, repetition,
                                           plan.repetitions));
      BE_ASSIGN_OR_RETURN(const auto sample, sweep.measure(size.bytes));
      if (sample.has_value()) size.repetitions.push_back(figures_of(*sample));
    }
  }
  result.interrupted = signals.arrived();
  std::erase_if(result.sizes,
                [](const PerfResult::Size& size) { return size.repetitions.empty(); });
  if (result.sizes.empty()) {
    return result.interrupted ? Status(Code::kCancelled, "interrupted before anything was measured")
                              : Status(Code::kUnavailable, "no message was answered in time");
  }
  sweep.describe(result);
  return result;
}

}  // namespace be::apps
