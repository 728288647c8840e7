#include "apps/patient_client.h"

#include <fmt/format.h>

#include <cstdio>
#include <utility>

namespace be::apps {
namespace {

constexpr Nanoseconds kRetryPause = 50ms;

// Whether the same call may succeed later without anybody changing it.
bool may_pass(Code code) {
  return code == Code::kUnavailable || code == Code::kDeadlineExceeded || code == Code::kNotFound;
}

double seconds(Nanoseconds duration) { return static_cast<double>(duration.count()) * 1e-9; }

}  // namespace

Result<std::unique_ptr<PatientClient>> PatientClient::connect(
    const Settings& settings, const std::vector<std::string>& servers, Nanoseconds patience) {
  ps::ParameterClientOptions options;
  options.channel = settings.channel;
  options.limits = settings.server.limits;
  for (const std::string& server : servers) {
    BE_ASSIGN_OR_RETURN(const Address address, kernel_world().network().resolve(server));
    options.servers.push_back(address);
  }
  NodeOptions node_options = settings.node;
  node_options.driven = true;
  node_options.io_threads = 1;

  std::unique_ptr<PatientClient> patient(new PatientClient(patience));
  BE_ASSIGN_OR_RETURN(patient->node_, Node::create(kernel_world(), node_options));
  BE_ASSIGN_OR_RETURN(patient->client_, ps::ParameterClient::connect(*patient->node_, options));
  return patient;
}

Status PatientClient::create_table(const ps::TableSpec& spec) {
  BE_ASSIGN_OR_RETURN(table_, client_->create_table(spec));
  created_ = spec;
  return ok_status();
}

Status PatientClient::open_table(const std::string& model, const std::string& name) {
  BE_ASSIGN_OR_RETURN(table_, client_->open_table(model, name));
  return ok_status();
}

void PatientClient::restore_table() {
  // A server that is still away fails this; the retry that follows finds out.
  if (created_) client_->create_table(*created_).status().ignore();
}

void PatientClient::note_failure(const Status& status) {
  if (!failing_since_) {
    failing_since_ = now();
    std::fprintf(stderr, "%s; trying again\n", status.message().c_str());
  }
}

void PatientClient::note_success() {
  if (!failing_since_) return;
  std::fprintf(stderr, "servers answer again after %.2f s\n", seconds(now() - *failing_since_));
  failing_since_.reset();
}

template <typename T, typename Call>
Result<T> PatientClient::try_patiently(Call call) {
  const Time give_up = saturating_add(now(), patience_);
  while (true) {
    Result<T> result = call();
    if (result.ok()) {
      note_success();
      return result;
    }
    if (!may_pass(result.status().code()) || now() >= give_up) return result;
    note_failure(result.status());
    ++retries_;
    if (result.status().code() == Code::kNotFound) restore_table();
    pause(kRetryPause);
  }
}

Result<ps::FetchedRows> PatientClient::fetch(std::span<const ps::Key> keys, OperationMeter& meter) {
  return try_patiently<ps::FetchedRows>([&] {
    const Time start = now();
    Result<ps::FetchedRows> rows = client_->fetch_and_wait(*table_, keys, {});
    if (rows.ok()) meter.record(now() - start, rows->wire_bytes);
    return rows;
  });
}

Status PatientClient::push(std::span<const ps::Key> keys, std::span<const float> gradients,
                           size_t max_outstanding, OperationMeter& meter) {
  const auto has_room = [&] { return outstanding_ < max_outstanding; };
  if (!has_room()) node_->thread(0).run_until(has_room, kNever);
  ++outstanding_;
  const Time start = now();
  Status status = client_->push(*table_, keys, gradients, {},
                                [this, start, &meter](Result<ps::PushSummary> summary) {
                                  --outstanding_;
                                  if (summary.ok()) {
                                    meter.record(now() - start, summary->wire_bytes);
                                  } else {
                                    ++lost_pushes_;
                                    note_failure(summary.status());
                                  }
                                });
  if (!status.ok()) --outstanding_;
  return status;
}

void PatientClient::drain() {
  node_->thread(0).run_until([this] { return outstanding_ == 0; }, kNever);
}

void PatientClient::pause(Nanoseconds duration) {
  node_->thread(0).run_until([] { return false; }, now() + duration);
}

Result<ps::StatsResponse> PatientClient::stats(size_t server) {
  return try_patiently<ps::StatsResponse>([&] { return client_->stats(server); });
}

Result<CpuTime> PatientClient::cpu_time() {
  CpuTime sum = this_process_cpu_time();
  for (size_t server = 0; server < client_->servers().size(); ++server) {
    BE_ASSIGN_OR_RETURN(const ps::StatsResponse answer, stats(server));
    sum = sum + CpuTime{Nanoseconds(answer.cpu_user_ns()), Nanoseconds(answer.cpu_system_ns())};
  }
  return sum;
}

Status PatientClient::CpuStretch::begin(PatientClient& client) {
  client_ = &client;
  retries_before_ = client.retries();
  BE_ASSIGN_OR_RETURN(before_, client.cpu_time());
  return ok_status();
}

Status PatientClient::CpuStretch::end(size_t operations, OperationMeter& meter) {
  BE_ASSIGN_OR_RETURN(const CpuTime after, client_->cpu_time());
  if (client_->retries() == retries_before_) meter.add_cpu(after - before_, operations);
  return ok_status();
}

Result<PatientClient::Memory> PatientClient::memory() {
  const uint64_t own_peak = node_->pool().stats().peak_registered_bytes;
  Memory sum{own_peak, own_peak, 0};
  for (size_t server = 0; server < client_->servers().size(); ++server) {
    BE_ASSIGN_OR_RETURN(const ps::StatsResponse answer, stats(server));
    sum.peak_registered_bytes += answer.peak_registered_bytes();
    for (const ps::TableStats& table : answer.tables()) sum.rows += table.rows();
  }
  return sum;
}

std::string PatientClient::transport() const {
  const std::optional<TransportKind> kind = client_->transport(0);
  return kind ? std::string(transport_name(*kind)) : "none";
}

}  // namespace be::apps
