#include "be/ps/table_spec.h"

#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace be::ps {
namespace {

bool is_name(std::string_view text) {
  return !text.empty() && text.size() <= TableSpec::kMaxNameBytes &&
         std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  c == '_' || c == '-' || c == '.';
         });
}

}  // namespace

TableId table_id(std::string_view full_name) {
  return XXH3_64bits(full_name.data(), full_name.size());
}

Status TableSpec::check() const {
  for (const auto& [what, text] :
       {std::pair<const char*, const std::string&>{"model", model}, {"table", name}}) {
    if (!is_name(text)) {
      return error(Code::kInvalidArgument,
                   "{} name '{}' is not 1 to {} of letters, digits, '_', '-' and '.'", what,
                   text.substr(0, kMaxNameBytes), kMaxNameBytes);
    }
  }
  if (dim == 0 || dim > kMaxDim) {
    return error(Code::kInvalidArgument, "table '{}': dim {} is not in 1 .. {}", full_name(), dim,
                 kMaxDim);
  }
  if (!std::isfinite(initial_scale) || initial_scale < 0) {
    return error(Code::kInvalidArgument, "table '{}': initial_scale {} is not a number >= 0",
                 full_name(), initial_scale);
  }
  return optimizer.check().with_context("table '" + full_name() + "'");
}

std::string TableSpec::to_string() const {
  return fmt::format("{}: dim {}, {}, initial values +-{}, seed {}", full_name(), dim,
                     optimizer.to_string(), initial_scale, seed);
}

}  // namespace be::ps
