// byteexpress rank: evaluates a trained model and serves ranking requests from it.
#include <fmt/format.h>

#include <memory>

#include "apps/commands.h"
#include "apps/output_file.h"
#include "apps/pacer.h"
#include "apps/ranker.h"
#include "apps/reporter.h"
#include "apps/trainer.h"

namespace be::apps {
namespace {

struct RankCommand {
  std::vector<std::string> servers;
  std::string data;
  std::string model = "movielens";
  uint64_t seed = 1;
  size_t candidates = 100;
  size_t requests = 2000;
  uint32_t rounds = 1;
  Nanoseconds patience = 10s;
  bool paced = false;
  bool events = false;
  std::string json;
};

// The best of the first request, for people.
Status show_sample(Ranker& ranker, const Ratings& ratings, const Reporter& reporter) {
  constexpr size_t kShown = 5;
  BE_ASSIGN_OR_RETURN(const std::vector<RankedMovie> ranked, ranker.rank(0));
  std::string text = fmt::format("user {} of {}, best of {} movies:", ranker.user_of(0) + 1,
                                 ratings.users().size(), ranked.size());
  for (size_t i = 0; i < std::min(kShown, ranked.size()); ++i) {
    text += fmt::format("\n  {:.2f}  {}", ranked[i].probability,
                        ratings.movies()[ranked[i].movie].title);
  }
  reporter.line(text);
  return ok_status();
}

Status rank(const RankCommand& command, const Settings& settings) {
  const Reporter reporter(command.events);
  BE_ASSIGN_OR_RETURN(OutputFile json, OutputFile::open(command.json));
  BE_ASSIGN_OR_RETURN(const Ratings ratings, Ratings::load(command.data));
  BE_ASSIGN_OR_RETURN(const auto client,
                      PatientClient::connect(settings, command.servers, command.patience));
  BE_RETURN_IF_ERROR(client->open_table(command.model, kTableName));
  OperationMeter evaluation_fetches;
  const Result<Evaluation> evaluation =
      evaluate(*client, ratings, command.seed, evaluation_fetches);
  if (!evaluation.ok()) return evaluation.status().with_context(command.data);
  reporter.line(
      fmt::format("AUC {:.4f} on {} held-out ratings", evaluation->auc, evaluation->examples));

  Ranker ranker(*client, ratings, command.seed, command.candidates);
  BE_RETURN_IF_ERROR(show_sample(ranker, ratings, reporter));
  BE_ASSIGN_OR_RETURN(const auto pacer, Pacer::create(client->node(), command.paced));
  Ranker measured(*client, ratings, command.seed, command.candidates);
  for (uint32_t round = 1; round <= command.rounds; ++round) {
    BE_RETURN_IF_ERROR(pacer->wait_for_go(reporter));
    const uint64_t first = uint64_t{round} * command.requests;
    BE_RETURN_IF_ERROR(measured.run_round(first, command.requests));
    reporter.event("round",
                   {{"round", round}, {"fraction", 1}, {"operations", measured.fetches().count()}});
    reporter.line(
        fmt::format("round {}/{}: {}", round, command.rounds, measured.fetches().figures().dump()));
  }

  BE_ASSIGN_OR_RETURN(const PatientClient::Memory memory, client->memory());
  const nlohmann::json result = {
      {"transport", client->transport()},
      {"auc", evaluation->auc},
      {"held_out", evaluation->examples},
      {"candidates", command.candidates},
      {"fetch", measured.fetches().figures()},
      {"missing_keys", measured.missing_keys()},
      {"retries", client->retries()},
      {"rows", memory.rows},
      {"peak_registered_bytes", memory.peak_registered_bytes},
  };
  reporter.event("result", result);
  return json.commit(result.dump(2) + "\n");
}

constexpr const char* kFooter =
    "Each request fetches the rows of one user and of all features of the candidate movies, once\n"
    "each, from all servers at the same time, and orders the movies by predicted liking. CPU time\n"
    "of a Fetch is that of this process (the scoring included) and of all servers, divided by the\n"
    "number of requests.";

}  // namespace

void add_rank(CLI::App& program, Settings& settings, Command& chosen) {
  CLI::App* app =
      program.add_subcommand("rank", "Evaluate a trained model and serve ranking requests from it");
  const auto command = std::make_shared<RankCommand>();
  app->footer(kFooter);
  app->option_defaults()->always_capture_default();
  app->add_option("--servers", command->servers, "parameter servers, in the order of their shards")
      ->delimiter(',')
      ->required()
      ->always_capture_default(false)
      ->type_name("HOST:PORT,...");
  app->add_option("--data", command->data, "the ratings that the model was trained on")
      ->required()
      ->type_name("FILE");
  app->add_option("--model", command->model, "name of the model in the servers");
  app->add_option("--seed", command->seed, "the trainer's, for the split; also draws the requests");
  app->add_option("--candidates", command->candidates, "movies to rank in a request")
      ->check(CLI::Range(1, 1 << 20));
  app->add_option("--requests", command->requests, "requests of a round")
      ->check(CLI::Range(1, 1 << 30));
  app->add_option("--rounds", command->rounds, "rounds of requests")->check(CLI::Range(1, 1 << 20));
  add_duration_option(*app, "--patience", command->patience,
                      "how long a Fetch is tried again when servers fail");
  app->add_option("--json", command->json, "write all figures")->type_name("FILE");
  app->add_flag("--events", command->events, "progress as one JSON object a line");
  app->add_flag("--paced", command->paced, "wait for a line on standard input before each round");
  settings.add_options(*app);
  app->callback([command, &settings, &chosen] {
    chosen = [command, &settings] { return rank(*command, settings); };
  });
}

}  // namespace be::apps
