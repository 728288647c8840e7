// byteexpress demo: the main job, end to end, over softnic and over TCP.
#include <fmt/format.h>

#include <csignal>
#include <cstdio>
#include <memory>

#include "apps/cluster.h"
#include "apps/commands.h"
#include "apps/demo_report.h"
#include "apps/output_file.h"
#include "apps/progress.h"
#include "apps/ratings.h"

namespace be::apps {
namespace {

struct DemoCommand {
  ClusterPlan plan;
  std::vector<std::string> transports = {"softnic", "tcp"};
  std::string json;
};

class Demo {
 public:
  explicit Demo(const DemoCommand& command) : command_(command), plan_(command.plan) {
    for (const std::string& transport : command.transports) {
      clusters_.push_back(std::make_unique<Cluster>(plan_, transport));
    }
    stretches_ = static_cast<double>(clusters_.size() * (plan_.epochs + 2 * plan_.rounds));
  }

  Status run();

 private:
  Status train();
  Status replay_pushes();
  Status rank();
  Status stretch(Cluster& cluster, const std::vector<Worker*>& workers, const std::string& what);
  void show(const Cluster& cluster, const std::vector<Worker*>& workers, const std::string& what);

  const DemoCommand& command_;
  const ClusterPlan& plan_;
  std::vector<std::unique_ptr<Cluster>> clusters_;
  Progress progress_;
  double stretches_ = 1;
  double stretches_done_ = 0;
  Time stretch_start_{};
  double operations_before_ = 0;  // of the workers, when the stretch began
};

double operations_of(const std::vector<Worker*>& workers) {
  double sum = 0;
  for (const Worker* worker : workers) {
    sum += worker->progress.value("operations", 0.0);
  }
  return sum;
}

Status Demo::run() {
  BE_ASSIGN_OR_RETURN(OutputFile json, OutputFile::open(command_.json));
  BE_ASSIGN_OR_RETURN(const Ratings ratings, Ratings::load(plan_.data));
  progress_.note(fmt::format("{}: {} ratings of {} movies by {} users", plan_.data, ratings.size(),
                             ratings.movies().size(), ratings.users().size()));
  for (const auto& cluster : clusters_) BE_RETURN_IF_ERROR(cluster->start_servers());
  BE_RETURN_IF_ERROR(train());
  BE_RETURN_IF_ERROR(replay_pushes());
  BE_RETURN_IF_ERROR(rank());
  for (const auto& cluster : clusters_) BE_RETURN_IF_ERROR(cluster->stop());
  progress_.clear();

  std::vector<nlohmann::json> figures;
  for (const auto& cluster : clusters_) figures.push_back(transport_figures(*cluster));
  const nlohmann::json demo = demo_figures(plan_, command_.transports, std::move(figures));
  BE_RETURN_IF_ERROR(json.commit(demo.dump(2) + "\n"));
  std::printf(
      "\n%s\n%u servers, %u trainers, 1 ranker, each a process of this host; the transports took\n"
      "turns, epoch by epoch and round by round. Latency is that of the client's call over all\n"
      "servers. CPU time is that of the client and all servers in rounds of nothing but these\n"
      "operations (scoring included), divided by their number. softnic is a software RNIC.\n",
      demo_table(demo, command_.transports).c_str(), plan_.servers, plan_.trainers);
  return ok_status();
}

Status Demo::train() {
  for (const auto& cluster : clusters_) BE_RETURN_IF_ERROR(cluster->start_trainers());
  for (uint32_t epoch = 1; epoch <= plan_.epochs; ++epoch) {
    for (const auto& cluster : clusters_) {
      const std::string what = fmt::format("training {}/{}", epoch, plan_.epochs);
      BE_RETURN_IF_ERROR(stretch(*cluster, cluster->trainers(), what));
      const nlohmann::json& end = cluster->trainer(0).progress;
      progress_.note(fmt::format("{}: {}, loss {:.4f}, AUC {:.4f}", cluster->transport(), what,
                                 end["loss"].get<double>(), end["auc"].get<double>()));
    }
  }
  return ok_status();
}

Status Demo::replay_pushes() {
  for (uint32_t round = 1; round <= plan_.rounds; ++round) {
    for (const auto& cluster : clusters_) {
      BE_RETURN_IF_ERROR(stretch(*cluster, {&cluster->trainer(0)},
                                 fmt::format("pushing {}/{}", round, plan_.rounds)));
    }
  }
  return ok_status();
}

Status Demo::rank() {
  for (const auto& cluster : clusters_) BE_RETURN_IF_ERROR(cluster->start_ranker());
  for (uint32_t round = 1; round <= plan_.rounds; ++round) {
    for (const auto& cluster : clusters_) {
      BE_RETURN_IF_ERROR(stretch(*cluster, {&cluster->ranker()},
                                 fmt::format("ranking {}/{}", round, plan_.rounds)));
    }
  }
  return ok_status();
}

Status Demo::stretch(Cluster& cluster, const std::vector<Worker*>& workers,
                     const std::string& what) {
  operations_before_ = operations_of(workers);
  stretch_start_ = kernel_world().now();
  Status status = cluster.step(
      workers, [&](const std::vector<Worker*>& at_work) { show(cluster, at_work, what); });
  if (!status.ok()) progress_.clear();
  stretches_done_ += 1;
  return status;
}

void Demo::show(const Cluster& cluster, const std::vector<Worker*>& workers,
                const std::string& what) {
  double fraction = 0;
  for (const Worker* worker : workers) {
    fraction += worker->progress.value("fraction", 0.0);
  }
  fraction /= static_cast<double>(workers.size());
  std::string text = fmt::format("{}  {}", cluster.transport(), what);
  const nlohmann::json& first = workers[0]->progress;
  if (first.contains("loss")) {
    text += fmt::format("  loss {:.4f}", first["loss"].get<double>());
  }
  if (first.contains("auc")) {
    text += fmt::format("  AUC {:.4f}", first["auc"].get<double>());
  }
  const double elapsed =
      std::chrono::duration<double>(kernel_world().now() - stretch_start_).count();
  const double operations = operations_of(workers);
  if (operations > operations_before_ && elapsed > 0) {
    text += fmt::format("  {:.0f} operations/s", (operations - operations_before_) / elapsed);
  }
  progress_.show((stretches_done_ + fraction) / stretches_, text);
}

constexpr const char* kFooter =
    "Starts servers, trainers and a ranker as processes of this host, once for each transport,\n"
    "trains a factorisation machine on the ratings with all parameters in the servers, ranks\n"
    "movies from it, and ends with one table. scripts/demo builds, gets the data and runs this:\n"
    "  scripts/demo --json demo.json";

}  // namespace

void add_demo(CLI::App& program, Settings& settings, Command& chosen) {
  CLI::App* app = program.add_subcommand(
      "demo", "Train and serve a recommender over softnic and over TCP, and compare");
  const auto command = std::make_shared<DemoCommand>();
  ClusterPlan& plan = command->plan;
  app->footer(kFooter);
  app->option_defaults()->always_capture_default();
  app->add_option("--data", plan.data, "ratings, see docs/data-format.md")
      ->required()
      ->type_name("FILE");
  app->add_option("--servers", plan.servers, "parameter servers")->check(CLI::Range(1, 64));
  app->add_option("--trainers", plan.trainers, "trainers")->check(CLI::Range(1, 64));
  app->add_option("--epochs", plan.epochs, "passes over the data")->check(CLI::Range(1, 100000));
  app->add_option("--batch", plan.batch, "examples of one Fetch and Push")
      ->check(CLI::Range(1, 1 << 20));
  app->add_option("--seed", plan.seed, "of the split, the order and the initial values");
  app->add_option("--candidates", plan.candidates, "movies to rank in a request")
      ->check(CLI::Range(1, 1 << 20));
  app->add_option("--rounds", plan.rounds, "rounds of measured pushes and of ranking")
      ->check(CLI::Range(1, 1000));
  app->add_option("--requests", plan.requests_per_round, "ranking requests of a round")
      ->check(CLI::Range(1, 1 << 30));
  app->add_option("--pushes", plan.pushes_per_round, "measured pushes of a round")
      ->check(CLI::Range(1, 1 << 30));
  app->add_option("--transports", command->transports, "what to compare, one or two of them")
      ->delimiter(',')
      ->expected(1, 2)
      ->check(CLI::IsMember({"rdma", "softnic", "tcp"}))
      ->type_name("NAME,NAME");
  app->add_option("--json", command->json, "write every figure")->type_name("FILE");
  settings.add_options(*app);
  app->remove_option(app->get_option("--transport"));
  app->callback([command, &settings, &chosen] {
    chosen = [command, &settings] {
      std::signal(SIGPIPE, SIG_IGN);  // a child that has died is noticed by its end
      command->plan.program = "/proc/self/exe";
      command->plan.settings = settings.forwarded();
      return Demo(*command).run();
    };
  });
}

}  // namespace be::apps
