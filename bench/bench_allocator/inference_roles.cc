// The processes of an inference run (inference.h): parameter servers and one ranker, as production
// has them. Each writes a line a second about its registered memory.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <random>
#include <thread>
#include <vector>

#include "be/base/histogram.h"
#include "be/ps/parameter_client.h"
#include "be/ps/parameter_server.h"
#include "bench/bench_allocator/jobs.h"

namespace be::bench {
namespace {

constexpr uint32_t kModels = 3;  // a request evaluates all of them
constexpr uint32_t kRows = 50'000;
constexpr uint32_t kDim = 16;
constexpr size_t kFillBatch = 2000;

// Candidates of a request: exponential, so that an answer of one of four servers has 20 KB in the
// mean and 50 KB or more in one of a hundred (the paper's training messages).
constexpr size_t kFeatures = 8;  // rows of a candidate
constexpr double kMeanCandidates = 160;
constexpr size_t kMinCandidates = 10;
constexpr size_t kMaxCandidates = 1000;
constexpr size_t kMaxOutstanding = 64;  // requests; more are turned away, as a front end does

double seconds(Nanoseconds duration) { return static_cast<double>(duration.count()) * 1e-9; }

void say(const nlohmann::json& line) {
  std::printf("%s\n", line.dump().c_str());
  std::fflush(stdout);
}

void say_memory(Node& node) {
  const PoolStats stats = node.pool().stats();
  say({{"now_seconds", seconds(node.world().now().time_since_epoch())},
       {"registered_bytes", stats.registered_bytes},
       {"live_bytes", stats.live_bytes},
       {"registrations", stats.registrations},
       {"deregistrations", stats.deregistrations}});
}

class Ranker {
 public:
  Ranker(Node& node, ps::ParameterClient& client) : node_(node), client_(client) {}

  Status fill_models();
  Status serve(double requests_per_second, Nanoseconds duration);
  nlohmann::json result() const;

 private:
  struct Request {
    Time begin;
    uint32_t unanswered = kModels;
  };

  Status rank();
  void answered(const std::shared_ptr<Request>& request, const Result<ps::FetchedRows>& rows);
  IoThread& thread() { return node_.thread(0); }
  Time now() const { return node_.world().now(); }

  Node& node_;
  ps::ParameterClient& client_;
  std::vector<const ps::RemoteTable*> models_;
  std::mt19937_64 random_{1};
  std::vector<ps::Key> keys_;
  size_t outstanding_ = 0;
  uint64_t turned_away_ = 0;
  uint64_t failed_ = 0;
  double score_ = 0;
  Histogram times_;
  Histogram answer_bytes_;
};

Status Ranker::fill_models() {
  std::vector<float> gradients(kFillBatch * kDim, 0.5f);
  for (uint32_t model = 0; model < kModels; ++model) {
    ps::TableSpec spec;
    spec.model = fmt::format("model{}", model);
    spec.name = "features";
    spec.dim = kDim;
    spec.initial_scale = 0.1f;
    BE_ASSIGN_OR_RETURN(const ps::RemoteTable* table, client_.create_table(spec));
    models_.push_back(table);
    for (ps::Key first = 0; first < kRows; first += kFillBatch) {
      keys_.resize(kFillBatch);
      for (size_t i = 0; i < kFillBatch; ++i) keys_[i] = first + i;
      BE_RETURN_IF_ERROR(client_.push_and_wait(*table, keys_, gradients, {}).status());
    }
  }
  return ok_status();
}

// Requests come at random moments, whatever became of those before.
Status Ranker::serve(double requests_per_second, Nanoseconds duration) {
  std::exponential_distribution<double> pause(requests_per_second);
  const Time end = now() + duration;
  Time next_request = now();
  Time next_line = now();
  while (now() < end) {
    thread().run_until([] { return false; }, std::min({next_request, next_line, end}));
    if (now() >= next_line) {
      say_memory(node_);
      next_line += 1s;
    }
    while (now() >= next_request) {
      next_request += Nanoseconds(static_cast<int64_t>(pause(random_) * 1e9));
      BE_RETURN_IF_ERROR(rank());
    }
  }
  thread().run_until([this] { return outstanding_ == 0; }, kNever);
  return ok_status();
}

Status Ranker::rank() {
  if (outstanding_ == kMaxOutstanding) {
    ++turned_away_;
    return ok_status();
  }
  std::exponential_distribution<double> exponential(1 / kMeanCandidates);
  const auto candidates =
      std::clamp(static_cast<size_t>(exponential(random_)), kMinCandidates, kMaxCandidates);
  keys_.resize(candidates * kFeatures);
  for (ps::Key& key : keys_) key = random_() % kRows;
  const auto request = std::make_shared<Request>(Request{.begin = now()});
  ++outstanding_;
  for (const ps::RemoteTable* model : models_) {
    BE_RETURN_IF_ERROR(
        client_.fetch(*model, keys_, {},
                      [this, request](Result<ps::FetchedRows> rows) { answered(request, rows); }));
  }
  return ok_status();
}

void Ranker::answered(const std::shared_ptr<Request>& request,
                      const Result<ps::FetchedRows>& rows) {
  if (rows.ok()) {
    for (const float value : rows->values) score_ += value;
    answer_bytes_.record(rows->wire_bytes / client_.servers().size());
  } else {
    ++failed_;
  }
  if (--request->unanswered > 0) return;
  --outstanding_;
  times_.record(static_cast<uint64_t>((now() - request->begin).count()));
}

nlohmann::json Ranker::result() const {
  return {{"requests", times_.count()},
          {"turned_away", turned_away_},
          {"failed_fetches", failed_},
          {"request_mean_us", times_.mean() / 1e3},
          {"request_p99_us", static_cast<double>(times_.percentile(0.99)) / 1e3},
          {"wire_bytes_of_a_server_mean", answer_bytes_.mean()},
          {"wire_bytes_of_a_server_p99", answer_bytes_.percentile(0.99)},
          {"score", score_}};
}

}  // namespace

Result<nlohmann::json> do_inference_server(const nlohmann::json& job) {
  BE_ASSIGN_OR_RETURN(const auto node, Node::create(kernel_world(), {}));
  ps::ParameterServerOptions options;
  options.server_index = job.at("index");
  options.server_count = job.at("servers");
  BE_ASSIGN_OR_RETURN(const auto server, ps::ParameterServer::create(*node, options));
  BE_ASSIGN_OR_RETURN(const Address address, Address::parse("127.0.0.1:0"));
  BE_RETURN_IF_ERROR(server->listen(address));
  say({{"address", server->address().to_string()}});
  for (Time next = node->world().now();; next += 1s) {  // until it is killed
    std::this_thread::sleep_for(next - node->world().now());
    say_memory(*node);
  }
}

Result<nlohmann::json> do_inference_ranker(const nlohmann::json& job) {
  NodeOptions node_options;
  node_options.driven = true;
  BE_ASSIGN_OR_RETURN(const auto node, Node::create(kernel_world(), node_options));
  ps::ParameterClientOptions options;
  for (const nlohmann::json& server : job.at("servers")) {
    BE_ASSIGN_OR_RETURN(const Address address, Address::parse(server.get<std::string>()));
    options.servers.push_back(address);
  }
  BE_ASSIGN_OR_RETURN(const auto client, ps::ParameterClient::connect(*node, options));
  say_memory(*node);
  Ranker ranker(*node, *client);
  BE_RETURN_IF_ERROR(ranker.fill_models());
  BE_RETURN_IF_ERROR(
      ranker.serve(job.at("requests_per_second"),
                   Nanoseconds(static_cast<int64_t>(job.at("seconds").get<double>() * 1e9))));
  nlohmann::json result = ranker.result();
  const auto transport = client->transport(0);
  result["transport"] = transport ? transport_name(*transport) : "none";
  return nlohmann::json{{"result", std::move(result)}};
}

}  // namespace be::bench
