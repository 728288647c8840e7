#include "apps/trainer.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "be/base/hash.h"

namespace be::apps {

ps::TableSpec TrainerOptions::table() const {
  ps::TableSpec spec;
  spec.model = model;
  spec.name = kTableName;
  spec.dim = static_cast<uint32_t>(1 + factors);
  spec.optimizer = {ps::OptimizerKind::kAdagrad, learning_rate, 0.1f};
  spec.initial_scale = initial_scale;
  spec.seed = seed;
  return spec;
}

Result<Evaluation> evaluate(PatientClient& client, const Ratings& ratings, uint64_t seed,
                            OperationMeter& meter) {
  constexpr size_t kExamplesPerFetch = 1024;
  const std::vector<uint32_t> held_out = ratings.examples(true, seed);
  const size_t dim = client.spec().dim;
  FactorisationMachine machine(dim - 1, 0);
  std::vector<float> scores;
  std::vector<bool> liked;
  std::vector<ps::Key> keys;
  for (size_t begin = 0; begin < held_out.size(); begin += kExamplesPerFetch) {
    const size_t end = std::min(begin + kExamplesPerFetch, held_out.size());
    keys.clear();
    for (size_t i = begin; i < end; ++i) {
      const std::span<const ps::Key> of_example = ratings.keys(held_out[i]);
      keys.insert(keys.end(), of_example.begin(), of_example.end());
    }
    BE_ASSIGN_OR_RETURN(const ps::FetchedRows rows, client.fetch(keys, meter));
    std::span<const float> rest = rows.values;
    for (size_t i = begin; i < end; ++i) {
      const size_t floats = ratings.keys(held_out[i]).size() * dim;
      scores.push_back(machine.score(rest.first(floats)));
      liked.push_back(ratings.liked(held_out[i]));
      rest = rest.subspan(floats);
    }
  }
  const double auc = area_under_curve(scores, liked);
  if (std::isnan(auc)) {
    return error(Code::kInvalidArgument,
                 "the {} held-out ratings are all liked or all not: AUC is undefined",
                 held_out.size());
  }
  return Evaluation{auc, held_out.size()};
}

Trainer::Trainer(PatientClient& client, const Ratings& ratings, const TrainerOptions& options)
    : client_(client), ratings_(ratings), options_(options), machine_(options.factors, options.l2) {
  const std::vector<uint32_t> all = ratings.examples(false, options.seed);
  for (size_t i = options.part.index; i < all.size(); i += options.part.count) {
    examples_.push_back(all[i]);
  }
}

void Trainer::collect_keys(size_t begin, size_t end) {
  keys_.clear();
  for (size_t i = begin; i < end; ++i) {
    const std::span<const ps::Key> keys = ratings_.keys(examples_[i]);
    keys_.insert(keys_.end(), keys.begin(), keys.end());
  }
}

double Trainer::add_gradients(size_t begin, size_t end, const ps::FetchedRows& rows) {
  gradients_.assign(rows.values.size(), 0.0f);
  std::span<const float> values = rows.values;
  std::span<float> gradients = gradients_;
  double loss = 0;
  for (size_t i = begin; i < end; ++i) {
    const size_t floats = ratings_.keys(examples_[i]).size() * machine_.dim();
    loss += machine_.add_gradients(values.first(floats), ratings_.liked(examples_[i]),
                                   gradients.first(floats));
    values = values.subspan(floats);
    gradients = gradients.subspan(floats);
  }
  return loss;
}

Result<double> Trainer::run_epoch(uint32_t epoch,
                                  const std::function<void(size_t, double)>& progress) {
  const uint64_t order = mix64(mix64(options_.seed, options_.part.index), epoch);
  for (size_t i = examples_.size(); i > 1; --i) {
    std::swap(examples_[i - 1], examples_[mix64(order, i) % i]);
  }
  double loss = 0;
  for (size_t begin = 0; begin < examples_.size(); begin += options_.batch) {
    const size_t end = std::min(begin + options_.batch, examples_.size());
    collect_keys(begin, end);
    BE_ASSIGN_OR_RETURN(const ps::FetchedRows rows, client_.fetch(keys_, fetches_));
    loss += add_gradients(begin, end, rows);
    BE_RETURN_IF_ERROR(client_.push(keys_, gradients_, options_.max_outstanding_pushes, pushes_));
    if (options_.max_outstanding_pushes == 1) client_.drain();
    progress(end, loss / static_cast<double>(end));
  }
  client_.drain();
  return loss / static_cast<double>(std::max(size_t{1}, examples_.size()));
}

Status Trainer::replay_pushes(size_t count, OperationMeter& meter) {
  PatientClient::CpuStretch cpu;
  BE_RETURN_IF_ERROR(cpu.begin(client_));
  size_t begin = 0;
  for (size_t i = 0; i < count; ++i) {
    const size_t end = std::min(begin + options_.batch, examples_.size());
    collect_keys(begin, end);
    gradients_.assign(keys_.size() * machine_.dim(), 0.0f);
    BE_RETURN_IF_ERROR(client_.push(keys_, gradients_, 1, meter));
    client_.drain();
    begin = end < examples_.size() ? end : 0;
  }
  return cpu.end(count, meter);
}

}  // namespace be::apps
