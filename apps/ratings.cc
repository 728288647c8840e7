#include "apps/ratings.h"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <memory>
#include <unordered_map>
#include <unordered_set>

#include "be/base/hash.h"

namespace be::apps {
namespace {

constexpr std::string_view kHeader = "user\tmovie\trating\ttimestamp\tyear\tgenres\ttitle";
constexpr size_t kFields = 7;
constexpr float kLiked = 4.0f;

enum class Field : uint8_t { kUser = 2, kMovie = 3, kYear = 4, kGenre = 5 };

Key feature(Field field, uint64_t id) {
  return static_cast<Key>(field) << 56 | (id & ((Key{1} << 56) - 1));
}

// A line being read; remembers where, for errors.
struct Line {
  const std::string& source;
  size_t number;
  std::array<std::string_view, kFields> fields{};

  template <typename... Args>
  Status error(fmt::format_string<Args...> format, Args&&... args) const {
    return be::error(Code::kInvalidArgument, "{}:{}: {}", source, number,
                     fmt::format(format, std::forward<Args>(args)...));
  }

  Status split(std::string_view text) {
    size_t found = 0;
    for (size_t begin = 0; begin <= text.size(); ++found) {
      const size_t end = std::min(text.find('\t', begin), text.size());
      if (found < kFields) fields[found] = text.substr(begin, end - begin);
      begin = end + 1;
    }
    if (found == kFields) return ok_status();
    return error("{} fields separated by tabs, {} are needed", found, kFields);
  }

  Result<uint64_t> positive(size_t index, const char* name) const {
    const std::string_view text = fields[index];
    uint64_t value = 0;
    const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (failure == std::errc() && end == text.data() + text.size() && value > 0 &&
        value < uint64_t{1} << 56) {
      return value;
    }
    return error("{} '{}' is not a positive whole number", name, text.substr(0, 40));
  }

  Result<float> rating() const {
    const std::string_view text = fields[2];
    float value = 0;
    const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (failure == std::errc() && end == text.data() + text.size() && std::isfinite(value)) {
      return value;
    }
    return error("rating '{}' is not a decimal number", text.substr(0, 40));
  }
};

Result<std::vector<Key>> movie_keys(const Line& line) {
  BE_ASSIGN_OR_RETURN(const uint64_t movie, line.positive(1, "movie"));
  std::vector<Key> keys = {feature(Field::kMovie, movie)};
  if (!line.fields[4].empty()) {
    BE_ASSIGN_OR_RETURN(const uint64_t year, line.positive(4, "year"));
    keys.push_back(feature(Field::kYear, year));
  }
  const std::string_view genres = line.fields[5];
  for (size_t begin = 0; begin < genres.size();) {
    const size_t end = std::min(genres.find('|', begin), genres.size());
    const std::string_view genre = genres.substr(begin, end - begin);
    const Key key = feature(Field::kGenre, XXH3_64bits(genre.data(), genre.size()));
    if (genre.empty()) return line.error("an empty genre in '{}'", genres.substr(0, 80));
    if (std::find(keys.begin(), keys.end(), key) == keys.end()) keys.push_back(key);
    begin = end + 1;
  }
  return keys;
}

Result<std::string> read_file(const std::string& path) {
  const std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen(path.c_str(), "rb"), std::fclose);
  if (!file) return error_from_errno(errno, "ratings file " + path);
  std::string text;
  std::array<char, 1 << 16> chunk;
  while (const size_t got = std::fread(chunk.data(), 1, chunk.size(), file.get())) {
    text.append(chunk.data(), got);
  }
  if (std::ferror(file.get())) return error_from_errno(errno, "ratings file " + path);
  return text;
}

}  // namespace

Result<Ratings> Ratings::load(const std::string& path) {
  BE_ASSIGN_OR_RETURN(const std::string text, read_file(path));
  return parse(text, path);
}

Result<Ratings> Ratings::parse(std::string_view text, const std::string& source) {
  Ratings ratings;
  std::unordered_set<Key> users;
  std::unordered_map<std::string, size_t> movies;  // by number, as written
  Line line{source, 0};
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view content = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    ++line.number;
    if (line.number == 1) {
      if (content == kHeader) continue;
      return line.error("the first line must be the header '{}', with tabs between the names",
                        "user movie rating timestamp year genres title");
    }
    BE_RETURN_IF_ERROR(line.split(content));
    BE_ASSIGN_OR_RETURN(const uint64_t user, line.positive(0, "user"));
    BE_ASSIGN_OR_RETURN(const float rating, line.rating());
    BE_RETURN_IF_ERROR(line.positive(3, "timestamp").status());
    const auto [movie, is_new] =
        movies.emplace(std::string(line.fields[1]), ratings.movies_.size());
    BE_ASSIGN_OR_RETURN(std::vector<Key> keys, movie_keys(line));
    if (is_new) ratings.movies_.push_back({std::string(line.fields[6]), keys});

    const Key user_key = feature(Field::kUser, user);
    if (users.insert(user_key).second) ratings.users_.push_back(user_key);
    ratings.keys_.push_back(kBiasKey);
    ratings.keys_.push_back(user_key);
    ratings.keys_.insert(ratings.keys_.end(), keys.begin(), keys.end());
    ratings.first_.push_back(ratings.keys_.size());
    ratings.labels_.push_back(rating >= kLiked);
  }
  if (ratings.size() == 0) return error(Code::kInvalidArgument, "{}: no ratings", source);
  return ratings;
}

std::vector<Key> Ratings::all_keys() const {
  std::vector<Key> keys = keys_;
  std::sort(keys.begin(), keys.end());
  keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
  return keys;
}

bool Ratings::held_out(size_t example, uint64_t seed) { return mix64(seed, example) % 10 == 0; }

std::vector<uint32_t> Ratings::examples(bool held_out_ones, uint64_t seed) const {
  std::vector<uint32_t> chosen;
  for (size_t i = 0; i < size(); ++i) {
    if (held_out(i, seed) == held_out_ones) chosen.push_back(static_cast<uint32_t>(i));
  }
  return chosen;
}

}  // namespace be::apps
