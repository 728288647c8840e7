// Trainer: one of n trainers that fit a factorisation machine with its rows in the servers.
//
//   for each batch:  fetch the rows of its features -> gradients -> push
//
// Trainer i of n takes every n-th training example, in an order of its own drawn from the seed.
// Pushes are asynchronous with a bound on those unanswered; in `sync` mode each is waited for, so
// that one trainer alone gives the same parameters, bit for bit, over every transport.
//
// One thread, which drives the client's node.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "apps/factorisation_machine.h"
#include "apps/options.h"
#include "apps/patient_client.h"
#include "apps/ratings.h"

namespace be::apps {

struct TrainerOptions {
  std::string model = "movielens";
  Part part;  // which trainer this is
  uint64_t seed = 1;
  size_t batch = 256;
  size_t factors = 8;
  float learning_rate = 0.1f;
  float l2 = 0.03f;
  float initial_scale = 0.05f;
  size_t max_outstanding_pushes = 4;  // 1 in sync mode

  ps::TableSpec table() const;  // "MODEL/features"
};
inline constexpr const char* kTableName = "features";

// The model's quality on the held-out tenth; an error if that holds only liked or only other
// examples.
struct Evaluation {
  double auc = 0;
  size_t examples = 0;
};
Result<Evaluation> evaluate(PatientClient& client, const Ratings& ratings, uint64_t seed,
                            OperationMeter& meter);

class Trainer {
 public:
  Trainer(PatientClient& client, const Ratings& ratings, const TrainerOptions& options);

  size_t examples() const { return examples_.size(); }

  // One pass over the examples; returns the mean loss. `progress` is called after each batch
  // with the examples done and the mean loss so far.
  Result<double> run_epoch(uint32_t epoch, const std::function<void(size_t, double)>& progress);

  // `count` pushes of zero gradients for the keys of real batches, one at a time: the same frames
  // and work as in training, and no parameter moves. For measuring Push alone.
  Status replay_pushes(size_t count, OperationMeter& meter);

  const OperationMeter& fetches() const { return fetches_; }
  const OperationMeter& pushes() const { return pushes_; }

 private:
  void collect_keys(size_t begin, size_t end);  // of examples_[begin .. end) into keys_
  double add_gradients(size_t begin, size_t end, const ps::FetchedRows& rows);

  PatientClient& client_;
  const Ratings& ratings_;
  const TrainerOptions options_;
  FactorisationMachine machine_;
  std::vector<uint32_t> examples_;
  std::vector<ps::Key> keys_;     // of the batch, with repetitions
  std::vector<float> gradients_;  // a row for each of keys_
  OperationMeter fetches_;
  OperationMeter pushes_;
};

}  // namespace be::apps
