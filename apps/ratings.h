// Ratings: the examples of a ratings file (docs/data-format.md) as features of a factorisation
// machine.
//
//   one rating -> keys { bias, user, movie, year?, genre ... }  label: rating >= 4
//
// Every feature is binary, so an example is its keys alone. A key carries its field in the top
// byte, so user 5 and movie 5 are different; genres are hashed by name. Keys depend on the data
// only: trainers and rankers that read the same file agree without talking.
//
// Plain values, read from any thread after load(). Failure: a Status with file, line and field.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "be/base/status.h"
#include "be/ps/table_spec.h"

namespace be::apps {

using ps::Key;

inline constexpr Key kBiasKey = Key{1} << 56;

struct Movie {
  std::string title;
  std::vector<Key> keys;  // movie, year, genres
};

class Ratings {
 public:
  static Result<Ratings> load(const std::string& path);
  static Result<Ratings> parse(std::string_view text, const std::string& source);

  size_t size() const { return labels_.size(); }
  std::span<const Key> keys(size_t example) const {
    return std::span(keys_).subspan(first_[example], first_[example + 1] - first_[example]);
  }
  bool liked(size_t example) const { return labels_[example]; }

  const std::vector<Key>& users() const { return users_; }  // in the order of appearance
  const std::vector<Movie>& movies() const { return movies_; }
  std::vector<Key> all_keys() const;  // each once, ascending: every row that training can touch

  // The random split: one example in ten is held out for evaluation, by seed.
  static bool held_out(size_t example, uint64_t seed);
  std::vector<uint32_t> examples(bool held_out_ones, uint64_t seed) const;

 private:
  std::vector<bool> labels_;
  std::vector<Key> keys_;
  std::vector<size_t> first_ = {0};
  std::vector<Key> users_;
  std::vector<Movie> movies_;
};

}  // namespace be::apps
