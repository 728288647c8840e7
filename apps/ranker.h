// Ranker: answers ranking requests from the parameters in the servers.
//
//   request: (user, candidate movies)  ->  one Fetch of all their features  ->  scores  ->  order
//
// A request takes `candidates` different movies of the catalogue and one user, drawn from the
// seed: the same requests over every transport.
//
// One thread, which drives the client's node.
#pragma once

#include <cstdint>
#include <vector>

#include "apps/factorisation_machine.h"
#include "apps/patient_client.h"
#include "apps/ratings.h"

namespace be::apps {

struct RankedMovie {
  uint32_t movie;  // index in Ratings::movies()
  float probability;
};

class Ranker {
 public:
  Ranker(PatientClient& client, const Ratings& ratings, uint64_t seed, size_t candidates);

  size_t user_of(uint64_t request) const;

  // The candidates of request number `request`, best first.
  Result<std::vector<RankedMovie>> rank(uint64_t request);

  // Ranks requests first .. first + count - 1, one after the other; adds the CPU time of it all.
  Status run_round(uint64_t first, size_t count);

  const OperationMeter& fetches() const { return fetches_; }
  uint64_t missing_keys() const { return missing_keys_; }

 private:
  void choose_candidates(uint64_t request);

  PatientClient& client_;
  const Ratings& ratings_;
  const uint64_t seed_;
  FactorisationMachine machine_;
  std::vector<RankedMovie> candidates_;
  std::vector<uint32_t> movies_;  // all, partly shuffled for each request
  std::vector<ps::Key> keys_;     // bias, user, then each candidate's
  std::vector<float> rows_;       // of one candidate: bias, user, its own
  OperationMeter fetches_;
  uint64_t missing_keys_ = 0;
};

}  // namespace be::apps
