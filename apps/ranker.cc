#include "apps/ranker.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "be/base/hash.h"

namespace be::apps {

Ranker::Ranker(PatientClient& client, const Ratings& ratings, uint64_t seed, size_t candidates)
    : client_(client),
      ratings_(ratings),
      seed_(seed),
      machine_(client.spec().dim - 1, 0),
      candidates_(std::min(candidates, ratings.movies().size())),
      movies_(ratings.movies().size()) {
  std::iota(movies_.begin(), movies_.end(), 0u);
}

size_t Ranker::user_of(uint64_t request) const {
  return mix64(seed_, request) % ratings_.users().size();
}

void Ranker::choose_candidates(uint64_t request) {
  const uint64_t draw = mix64(mix64(seed_, request), 1);
  for (size_t i = 0; i < candidates_.size(); ++i) {
    std::swap(movies_[i], movies_[i + mix64(draw, i) % (movies_.size() - i)]);
    candidates_[i] = {movies_[i], 0};
  }
}

Result<std::vector<RankedMovie>> Ranker::rank(uint64_t request) {
  choose_candidates(request);
  keys_.assign({kBiasKey, ratings_.users()[user_of(request)]});
  for (const RankedMovie& candidate : candidates_) {
    const std::vector<ps::Key>& keys = ratings_.movies()[candidate.movie].keys;
    keys_.insert(keys_.end(), keys.begin(), keys.end());
  }
  BE_ASSIGN_OR_RETURN(const ps::FetchedRows rows, client_.fetch(keys_, fetches_));
  missing_keys_ +=
      static_cast<uint64_t>(std::count(rows.missing.begin(), rows.missing.end(), true));

  std::span<const float> rest = rows.values;
  const size_t shared_floats = 2 * machine_.dim();
  rows_.assign(rest.begin(), rest.begin() + static_cast<ptrdiff_t>(shared_floats));
  rest = rest.subspan(shared_floats);
  for (RankedMovie& candidate : candidates_) {
    const size_t floats = ratings_.movies()[candidate.movie].keys.size() * machine_.dim();
    rows_.resize(shared_floats);
    rows_.insert(rows_.end(), rest.begin(), rest.begin() + static_cast<ptrdiff_t>(floats));
    candidate.probability = probability(machine_.score(rows_));
    rest = rest.subspan(floats);
  }
  std::vector<RankedMovie> ranked = candidates_;
  std::stable_sort(ranked.begin(), ranked.end(), [](const RankedMovie& a, const RankedMovie& b) {
    return a.probability > b.probability;
  });
  return ranked;
}

Status Ranker::run_round(uint64_t first, size_t count) {
  PatientClient::CpuStretch cpu;
  BE_RETURN_IF_ERROR(cpu.begin(client_));
  for (size_t i = 0; i < count; ++i) BE_RETURN_IF_ERROR(rank(first + i).status());
  return cpu.end(count, fetches_);
}

}  // namespace be::apps
