// byteexpress train: fits the model, alone or as one of several trainers.
#include <fmt/format.h>
#include <xxhash.h>

#include <bit>
#include <memory>

#include "apps/commands.h"
#include "apps/output_file.h"
#include "apps/pacer.h"
#include "apps/reporter.h"
#include "apps/trainer.h"

namespace be::apps {
namespace {

struct TrainCommand {
  std::vector<std::string> servers;
  std::string data;
  TrainerOptions trainer;
  uint32_t epochs = 6;
  bool sync = false;
  bool evaluates = true;
  size_t replayed_pushes = 0;
  uint32_t replay_rounds = 1;
  Nanoseconds patience = 10s;
  bool paced = false;
  bool events = false;
  std::string dump;
  std::string json;
};

double seconds(Nanoseconds duration) { return static_cast<double>(duration.count()) * 1e-9; }

// Every parameter as text, exactly, and a checksum of their bits.
Result<std::pair<std::string, uint64_t>> dump_parameters(PatientClient& client,
                                                         const Ratings& ratings) {
  constexpr size_t kKeysPerFetch = 4096;
  const std::vector<ps::Key> keys = ratings.all_keys();
  std::string text = fmt::format("# {}\n", client.spec().to_string());
  uint64_t checksum = 0;
  OperationMeter unused;
  for (size_t begin = 0; begin < keys.size(); begin += kKeysPerFetch) {
    const std::span<const ps::Key> some =
        std::span(keys).subspan(begin, std::min(kKeysPerFetch, keys.size() - begin));
    BE_ASSIGN_OR_RETURN(const ps::FetchedRows rows, client.fetch(some, unused));
    checksum =
        XXH3_64bits_withSeed(rows.values.data(), rows.values.size() * sizeof(float), checksum);
    for (size_t i = 0; i < some.size(); ++i) {
      text += fmt::format("{}", some[i]);
      for (const float value : rows.row(i)) text += fmt::format("\t{}", value);
      text += '\n';
    }
  }
  text += fmt::format("# checksum {:016x}\n", checksum);
  return std::pair(std::move(text), checksum);
}

uint64_t operations(const Trainer& trainer) {
  return trainer.fetches().count() + trainer.pushes().count();
}

class TrainRun {
 public:
  TrainRun(const TrainCommand& command, const Settings& settings)
      : command_(command), settings_(settings), reporter_(command.events) {}

  Status run();

 private:
  Status run_epochs(Trainer& trainer, Pacer& pacer);
  Status replay_pushes(Trainer& trainer, Pacer& pacer);
  Status evaluate_model();
  Status dump(OutputFile& file);
  void report_progress(const Trainer& trainer, uint32_t epoch, size_t examples, double loss);

  const TrainCommand& command_;
  const Settings& settings_;
  const Reporter reporter_;
  Ratings ratings_;
  std::unique_ptr<PatientClient> client_;
  nlohmann::json result_;
  Nanoseconds training_time_{0};
  Time next_progress_{};
};

Status TrainRun::run() {
  BE_ASSIGN_OR_RETURN(OutputFile json, OutputFile::open(command_.json));
  BE_ASSIGN_OR_RETURN(OutputFile dump_file, OutputFile::open(command_.dump));
  BE_ASSIGN_OR_RETURN(ratings_, Ratings::load(command_.data));
  BE_ASSIGN_OR_RETURN(client_,
                      PatientClient::connect(settings_, command_.servers, command_.patience));
  BE_RETURN_IF_ERROR(client_->create_table(command_.trainer.table()));
  TrainerOptions options = command_.trainer;
  if (command_.sync) options.max_outstanding_pushes = 1;
  Trainer trainer(*client_, ratings_, options);
  BE_ASSIGN_OR_RETURN(const auto pacer, Pacer::create(client_->node(), command_.paced));

  BE_RETURN_IF_ERROR(run_epochs(trainer, *pacer));
  BE_RETURN_IF_ERROR(replay_pushes(trainer, *pacer));
  BE_RETURN_IF_ERROR(dump(dump_file));

  BE_ASSIGN_OR_RETURN(const PatientClient::Memory memory, client_->memory());
  result_["transport"] = client_->transport();
  result_["epochs"] = command_.epochs;
  result_["examples"] = trainer.examples();
  result_["seconds"] = seconds(training_time_);
  result_["fetch"] = trainer.fetches().figures();
  result_["push"] = trainer.pushes().figures();
  result_["retries"] = client_->retries();
  result_["lost_pushes"] = client_->lost_pushes();
  result_["rows"] = memory.rows;
  result_["own_peak_registered_bytes"] = memory.own_peak_registered_bytes;
  result_["peak_registered_bytes"] = memory.peak_registered_bytes;
  reporter_.event("result", result_);
  return json.commit(result_.dump(2) + "\n");
}

Status TrainRun::run_epochs(Trainer& trainer, Pacer& pacer) {
  reporter_.line(fmt::format("trainer {}/{}: {} examples, {} servers over {}",
                             command_.trainer.part.index, command_.trainer.part.count,
                             trainer.examples(), command_.servers.size(), client_->transport()));
  for (uint32_t epoch = 1; epoch <= command_.epochs; ++epoch) {
    BE_RETURN_IF_ERROR(pacer.wait_for_go(reporter_));
    const Time start = client_->now();
    BE_ASSIGN_OR_RETURN(const double loss,
                        trainer.run_epoch(epoch, [&](size_t examples, double mean_loss) {
                          report_progress(trainer, epoch, examples, mean_loss);
                        }));
    training_time_ += client_->now() - start;
    result_["loss"] = loss;
    if (command_.evaluates) BE_RETURN_IF_ERROR(evaluate_model());
    reporter_.event("epoch", {{"epoch", epoch},
                              {"loss", loss},
                              {"auc", result_["auc"]},
                              {"seconds", seconds(training_time_)},
                              {"operations", operations(trainer)}});
    reporter_.line(fmt::format(
        "epoch {}/{}: loss {:.4f}{}, {:.0f} operations/s", epoch, command_.epochs, loss,
        command_.evaluates ? fmt::format(", AUC {:.4f}", result_["auc"].get<double>()) : "",
        static_cast<double>(operations(trainer)) / seconds(training_time_)));
  }
  return ok_status();
}

Status TrainRun::evaluate_model() {
  OperationMeter unused;
  const Result<Evaluation> evaluation = evaluate(*client_, ratings_, command_.trainer.seed, unused);
  if (!evaluation.ok()) return evaluation.status().with_context(command_.data);
  result_["auc"] = evaluation->auc;
  result_["held_out"] = evaluation->examples;
  return ok_status();
}

void TrainRun::report_progress(const Trainer& trainer, uint32_t epoch, size_t examples,
                               double loss) {
  constexpr Nanoseconds kInterval = 100ms;
  if (!reporter_.events() || client_->now() < next_progress_) return;
  next_progress_ = client_->now() + kInterval;
  reporter_.event("progress", {{"epoch", epoch},
                               {"fraction", static_cast<double>(examples) /
                                                static_cast<double>(trainer.examples())},
                               {"loss", loss},
                               {"operations", operations(trainer)}});
}

Status TrainRun::replay_pushes(Trainer& trainer, Pacer& pacer) {
  if (command_.replayed_pushes == 0) return ok_status();
  OperationMeter meter;
  for (uint32_t round = 1; round <= command_.replay_rounds; ++round) {
    BE_RETURN_IF_ERROR(pacer.wait_for_go(reporter_));
    BE_RETURN_IF_ERROR(trainer.replay_pushes(command_.replayed_pushes, meter));
    reporter_.event(
        "round",
        {{"round", round}, {"fraction", 1}, {"operations", operations(trainer) + meter.count()}});
  }
  result_["replayed_push"] = meter.figures();
  reporter_.line(fmt::format("replayed pushes, one at a time: {}", meter.figures().dump()));
  return ok_status();
}

Status TrainRun::dump(OutputFile& file) {
  if (!file.wanted()) return ok_status();
  BE_ASSIGN_OR_RETURN(const auto parameters, dump_parameters(*client_, ratings_));
  result_["parameters_checksum"] = fmt::format("{:016x}", parameters.second);
  reporter_.line(fmt::format("parameters' checksum {:016x}", parameters.second));
  return file.commit(parameters.first);
}

constexpr const char* kFooter =
    "Two trainers share the work and push without waiting for each other:\n"
    "  byteexpress train --servers A,B --data ratings.tsv --trainer 0/2 &\n"
    "  byteexpress train --servers A,B --data ratings.tsv --trainer 1/2\n"
    "One trainer that waits for each push gives the same parameters over every transport:\n"
    "  byteexpress train --servers A,B --data ratings.tsv --sync --dump parameters.tsv\n"
    "If a server goes away, the trainer reports it, tries again, and makes the table anew on a\n"
    "server that comes back empty.";

}  // namespace

void add_train(CLI::App& program, Settings& settings, Command& chosen) {
  CLI::App* app = program.add_subcommand(
      "train", "Fit a factorisation machine whose parameters live in the servers");
  const auto command = std::make_shared<TrainCommand>();
  TrainerOptions& trainer = command->trainer;
  app->footer(kFooter);
  app->option_defaults()->always_capture_default();
  app->add_option("--servers", command->servers, "parameter servers, in the order of their shards")
      ->delimiter(',')
      ->required()
      ->always_capture_default(false)
      ->type_name("HOST:PORT,...");
  app->add_option("--data", command->data, "ratings, see docs/data-format.md")
      ->required()
      ->type_name("FILE");
  app->add_option("--model", trainer.model, "name of the model in the servers");
  app->add_option("--epochs", command->epochs, "passes over the data")
      ->check(CLI::Range(1, 100000));
  app->add_option("--batch", trainer.batch, "examples of one Fetch and Push")
      ->check(CLI::Range(1, 1 << 20));
  app->add_option("--seed", trainer.seed, "of the split, the order and the initial values");
  add_part_option(*app, "--trainer", trainer.part, "which of how many trainers this is");
  app->add_option("--factors", trainer.factors, "k, factors of a feature")
      ->check(CLI::Range(1, 1024));
  app->add_option("--learning-rate", trainer.learning_rate, "of Adagrad")
      ->check(CLI::PositiveNumber);
  app->add_option("--l2", trainer.l2, "penalty on weights and factors")
      ->check(CLI::NonNegativeNumber);
  app->add_option("--outstanding", trainer.max_outstanding_pushes, "unanswered pushes at most")
      ->check(CLI::Range(1, 1024));
  app->add_flag("--sync", command->sync, "wait for each push");
  add_duration_option(*app, "--patience", command->patience,
                      "how long a Fetch is tried again when servers fail");
  app->add_flag("!--no-evaluation", command->evaluates, "no AUC after each epoch");
  app->add_option("--replay-pushes", command->replayed_pushes,
                  "at the end, measure this many pushes of zero gradients");
  app->add_option("--replay-rounds", command->replay_rounds, "so many times");
  app->add_option("--dump", command->dump, "write all parameters and their checksum")
      ->type_name("FILE");
  app->add_option("--json", command->json, "write all figures")->type_name("FILE");
  app->add_flag("--events", command->events, "progress as one JSON object a line");
  app->add_flag("--paced", command->paced, "wait for a line on standard input before each epoch");
  settings.add_options(*app);
  app->callback([command, &settings, &chosen] {
    chosen = [command, &settings] { return TrainRun(*command, settings).run(); };
  });
}

}  // namespace be::apps
