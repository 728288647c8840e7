#include "be/sim/parameter_work.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace be::sim {
namespace {

constexpr uint16_t kServerPort = 9000;
constexpr uint32_t kDim = 3;
constexpr size_t kKeys = 48;  // of each client
constexpr Nanoseconds kTimeout = 300ms;
constexpr Nanoseconds kSlack = 100ms;
constexpr Nanoseconds kPause = 1ms;  // after an operation that was refused

ps::TableSpec table_spec() {
  ps::TableSpec spec;
  spec.model = "sim";
  spec.name = "counts";
  spec.dim = kDim;
  spec.optimizer.kind = ps::OptimizerKind::kSgd;
  spec.optimizer.learning_rate = 1;
  return spec;
}

}  // namespace

struct ParameterWork::Operation {
  Client* client = nullptr;
  bool pushes = false;
  std::vector<size_t> indices;         // of the client's keys, each once
  std::vector<uint32_t> known_before;  // acknowledged pushes of each when a fetch began
  Time began{};
  int ends = 0;
};

ParameterWork::ParameterWork(Cluster& cluster)
    : cluster_(cluster),
      simulation_(cluster.simulation()),
      random_(cluster.simulation().random().fork()) {
  servers_ = static_cast<uint32_t>(random_.between(1, cluster.knobs().hosts.size() - 1));
}

ParameterWork::~ParameterWork() = default;

ps::Key ParameterWork::key_of(const Client& client, size_t index) const {
  return mix64(client.number, index);
}

void ParameterWork::on_start(Process& process) {
  if (process.index >= servers_) return;
  ps::ParameterServerOptions options;
  options.server_index = process.index;
  options.server_count = servers_;
  options.push_threads = static_cast<int>(random_.between(1, 2));
  auto server = ps::ParameterServer::create(*process.node, options);
  Status status = server.status();
  if (status.ok()) status = (*server)->listen(process.host->address(kServerPort));
  if (!status.ok()) return simulation_.violate("parameter server: " + status.to_string());
  running_[&process] = *std::move(server);
}

void ParameterWork::on_end(Process& process) {
  for (const auto& client : clients_) {
    if (client->process == &process) client->parameters.reset();
  }
  running_.erase(&process);
}

void ParameterWork::on_resume(Process& process, Nanoseconds) {
  for (const auto& client : clients_) {
    if (client->process == &process) retry_later(*client);
  }
}

// Connecting and creating the table block, as in a program's main thread; no fault comes before.
void ParameterWork::start() {
  ps::ParameterClientOptions options;
  for (uint32_t i = 0; i < servers_; ++i) {
    options.servers.push_back(cluster_.at(i).host->address(kServerPort));
  }
  options.channel.connect_timeout = 2s;
  options.channel.request_timeout = 2s;
  for (size_t i = servers_; i < cluster_.size(); ++i) {
    auto client = std::make_unique<Client>();
    client->process = &cluster_.at(i);
    client->number = static_cast<uint32_t>(i);
    client->random = random_.fork();
    client->counts.resize(kKeys);
    client->planned =
        static_cast<uint32_t>(random_.between(1, 8 * uint64_t{cluster_.knobs().work.messages}));
    auto connected = ps::ParameterClient::connect(*client->process->node, options);
    if (!connected.ok()) {
      return simulation_.violate("parameter client: " + connected.status().to_string());
    }
    client->parameters = *std::move(connected);
    auto table = client->parameters->create_table(table_spec());
    if (!table.ok()) return simulation_.violate("create_table: " + table.status().to_string());
    client->table = *table;
    clients_.push_back(std::move(client));
  }
  started_ = true;
  for (const auto& client : clients_) go_on(*client);
}

void ParameterWork::go_on(Client& client) {
  const uint32_t most = cluster_.knobs().work.outstanding;
  while (client.begun < client.planned && client.begun - client.ended < most &&
         client.process->alive() && client.parameters != nullptr) {
    const uint32_t before = client.begun;
    if (client.random.one_in(2)) {
      push(client);
    } else {
      fetch(client);
    }
    if (client.begun == before) return;  // refused: it comes back later
  }
}

void ParameterWork::push(Client& client) {
  auto operation = std::make_shared<Operation>();
  operation->client = &client;
  operation->pushes = true;
  operation->began = simulation_.now();
  const size_t count = client.random.spread(1, kKeys);
  const size_t first = client.random.below(kKeys);
  std::vector<ps::Key> keys;
  for (size_t i = 0; i < count; ++i) {
    operation->indices.push_back((first + i) % kKeys);
    keys.push_back(key_of(client, operation->indices.back()));
  }
  const std::vector<float> gradients(count * kDim, 1.0f);
  ++client.begun;
  for (const size_t index : operation->indices) ++client.counts[index].begun;
  const Status status =
      client.parameters->push(*client.table, keys, gradients, {.timeout = kTimeout},
                              [this, operation](const Result<ps::PushSummary>& summary) {
                                if (summary.ok()) {
                                  for (const size_t index : operation->indices) {
                                    ++operation->client->counts[index].acknowledged;
                                  }
                                }
                                finish(operation, summary.status());
                              });
  if (status.ok()) return;
  --client.begun;  // refused: nothing was begun
  for (const size_t index : operation->indices) --client.counts[index].begun;
  retry_later(client);
}

void ParameterWork::fetch(Client& client) {
  auto operation = std::make_shared<Operation>();
  operation->client = &client;
  operation->began = simulation_.now();
  const size_t count = client.random.spread(1, kKeys);
  std::vector<ps::Key> keys;
  for (size_t i = 0; i < count; ++i) {
    operation->indices.push_back(client.random.below(kKeys));  // some of them twice
    keys.push_back(key_of(client, operation->indices.back()));
    operation->known_before.push_back(client.counts[operation->indices.back()].acknowledged);
  }
  ++client.begun;
  const Status status =
      client.parameters->fetch(*client.table, keys, {.timeout = kTimeout},
                               [this, operation](const Result<ps::FetchedRows>& rows) {
                                 if (rows.ok()) check_rows(*operation, *rows);
                                 finish(operation, rows.status());
                               });
  if (status.ok()) return;
  --client.begun;
  retry_later(client);
}

void ParameterWork::retry_later(Client& client) {
  simulation_.after(kPause, [this, &client] { go_on(client); });
}

bool ParameterWork::rows_may_be_lost() const {
  const auto& faults = cluster_.knobs().faults;
  return std::any_of(faults.begin(), faults.end(), [this](const Fault& fault) {
    return fault.host < servers_ &&
           (fault.kind == Fault::Kind::kKill || fault.kind == Fault::Kind::kKillAndStart);
  });
}

void ParameterWork::check_rows(const Operation& operation, const ps::FetchedRows& rows) {
  const Client& client = *operation.client;
  for (size_t i = 0; i < operation.indices.size(); ++i) {
    const Count& count = client.counts[operation.indices[i]];
    const std::span<const float> row = rows.row(i);
    const float pushes = -row[0];
    const bool whole = std::all_of(row.begin(), row.end(), [&](float v) { return v == row[0]; });
    const bool low = pushes < static_cast<float>(operation.known_before[i]);
    const bool high = pushes > static_cast<float>(count.begun);
    if (whole && !high && (!low || rows_may_be_lost())) continue;
    simulation_.violate(
        fmt::format("client {}: a row is {} {} {}; {} pushes were acknowledged, {} begun",
                    client.number, row[0], row[1], row[2], operation.known_before[i], count.begun));
  }
}

void ParameterWork::finish(const std::shared_ptr<Operation>& operation, const Status& status) {
  Client& client = *operation->client;
  simulation_.note(Happening::kAnswer, client.number, operation->pushes,
                   static_cast<uint64_t>(status.code()));
  if (++operation->ends > 1) return simulation_.violate("an operation ended twice");
  ++client.ended;
  const Nanoseconds took = simulation_.now() - operation->began;
  const bool paused = std::any_of(
      cluster_.knobs().faults.begin(), cluster_.knobs().faults.end(), [&](const Fault& fault) {
        return fault.host == client.process->index && fault.kind != Fault::Kind::kWorkRequest;
      });
  if (took > kTimeout + kSlack && !paused) {
    simulation_.violate(fmt::format("an operation of {} ms ended after {} ms: {}", kTimeout / 1ms,
                                    took / 1ms, status.to_string()));
  }
  const bool healthy = std::none_of(cluster_.knobs().faults.begin(), cluster_.knobs().faults.end(),
                                    [](const Fault& f) { return f.kind != Fault::Kind::kPause; });
  const bool in_time = status.code() == Code::kDeadlineExceeded;  // hosts may be slow
  const bool scarce = cluster_.knobs().refusals_allowed;
  if (!status.ok() && healthy && !in_time && !scarce && client.parameters != nullptr) {
    simulation_.violate("an operation between healthy processes failed: " + status.to_string());
  }
  // Not from within the callback, as a program would not; and out of memory is no reason to hurry.
  simulation_.after(status.ok() ? 1us : kPause, [this, &client] { go_on(client); });
}

bool ParameterWork::done() const {
  return started_ && std::all_of(clients_.begin(), clients_.end(), [](const auto& client) {
           return client->ended == client->planned || !client->process->alive();
         });
}

std::string ParameterWork::unfinished() const {
  std::string text;
  for (const auto& client : clients_) {
    text += fmt::format(" client {}: {} begun, {} ended of {};", client->number, client->begun,
                        client->ended, client->planned);
  }
  return text;
}

}  // namespace be::sim
