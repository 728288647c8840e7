#include "apps/perf_sizes.h"

#include "be/base/units.h"

namespace be::apps {
namespace {

constexpr std::string_view kTo = "..";
constexpr size_t kMaxSizes = 1000;

Result<uint64_t> parse_size(std::string_view text) {
  BE_ASSIGN_OR_RETURN(const uint64_t size, parse_bytes(text));
  if (size < 1 || size > kMaxPerfBytes) {
    return error(Code::kInvalidArgument, "size '{}' is not 1 byte to {}", text,
                 format_bytes(kMaxPerfBytes));
  }
  return size;
}

Status append(std::string_view item, std::vector<uint32_t>& sizes) {
  const size_t to = item.find(kTo);
  BE_ASSIGN_OR_RETURN(const uint64_t first, parse_size(item.substr(0, to)));
  uint64_t last = first;
  if (to != std::string_view::npos) {
    BE_ASSIGN_OR_RETURN(last, parse_size(item.substr(to + kTo.size())));
  }
  if (last < first) return error(Code::kInvalidArgument, "sizes '{}' go down", item);
  for (uint64_t size = first; size < last; size *= 2) sizes.push_back(static_cast<uint32_t>(size));
  sizes.push_back(static_cast<uint32_t>(last));
  return {};
}

}  // namespace

Result<std::vector<uint32_t>> parse_sizes(std::string_view text) {
  std::vector<uint32_t> sizes;
  for (;;) {
    const size_t comma = text.find(',');
    BE_RETURN_IF_ERROR(append(text.substr(0, comma), sizes));
    if (sizes.size() > kMaxSizes) {
      return error(Code::kInvalidArgument, "more than {} sizes", kMaxSizes);
    }
    if (comma == std::string_view::npos) return sizes;
    text.remove_prefix(comma + 1);
  }
}

}  // namespace be::apps
