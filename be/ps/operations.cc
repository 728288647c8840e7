#include "be/ps/operations.h"

#include <algorithm>
#include <cstring>

namespace be::ps {

Status FetchOperation::prepare(RegisteredPool& pool, uint32_t view_version, const Limits& limits) {
  size_t responses_bytes = 0;
  for (size_t part = 0; part < plan().parts().size(); ++part) {
    const std::span<const Key> keys = plan().keys_of(plan().parts()[part]);
    const FetchLayout layout = fetch_request_layout(keys.size());
    const size_t response_bytes = fetch_response_layout(keys.size(), table().spec.dim).bytes;
    BE_RETURN_IF_ERROR(
        check_request("Fetch", keys.size(), std::max(layout.bytes, response_bytes), limits));
    responses_bytes += response_bytes;
    if (responses_bytes > limits.cap_bytes) {
      return error(
          Code::kInvalidArgument,
          "Fetch: the responses of all servers together are more than memory.cap_bytes = {}",
          limits.cap_bytes);
    }
    BE_ASSIGN_OR_RETURN(frame(part), pool.allocate_buffer(layout.bytes));
    begin_fetch_request(frame(part).bytes(), table().id, view_version,
                        static_cast<uint32_t>(keys.size()));
    std::memcpy(frame(part).data() + layout.keys, keys.data(), keys.size_bytes());
  }
  return ok_status();
}

Result<FetchedRows> FetchOperation::gather() {
  const uint32_t dim = table().spec.dim;
  FetchedRows rows;
  rows.dim = dim;
  rows.wire_bytes = request_bytes();

  // Where the row of each unique key lies, whether it is missing.
  struct Source {
    const FetchResponse* response;
    uint32_t index;
  };
  std::vector<Source> sources(plan().unique().size());
  std::vector<FetchResponse> responses(plan().parts().size());
  for (size_t part = 0; part < responses.size(); ++part) {
    const KeyPlan::Part& keys = plan().parts()[part];
    if (!answer(part).ok()) return part_error("fetch from", part, answer(part).status());
    const Buffer& frame = answer(part)->attachment;
    const auto response = parse_fetch_response(frame.bytes(), keys.count, dim);
    if (!response.ok()) return part_error("fetch from", part, response.status());
    responses[part] = *response;
    rows.wire_bytes += frame.size();
    for (uint32_t i = 0; i < keys.count; ++i) sources[keys.first + i] = {&responses[part], i};
  }

  rows.values.resize(plan().size() * dim);
  rows.missing.resize(plan().size());
  for (size_t i = 0; i < plan().size(); ++i) {
    const Source& source = sources[plan().position(i)];
    source.response->values.copy(size_t{source.index} * dim,
                                 std::span(rows.values).subspan(i * dim, dim));
    rows.missing[i] = source.response->is_missing(source.index);
  }
  return rows;
}

Status PushOperation::prepare(RegisteredPool& pool, uint32_t view_version, const Limits& limits,
                              std::span<const float> gradients) {
  const uint32_t dim = table().spec.dim;
  for (size_t part = 0; part < plan().parts().size(); ++part) {
    const std::span<const Key> keys = plan().keys_of(plan().parts()[part]);
    const RowsLayout layout = push_request_layout(keys.size(), dim);
    BE_RETURN_IF_ERROR(check_request("Push", keys.size(), layout.bytes, limits));
    BE_ASSIGN_OR_RETURN(frame(part), pool.allocate_buffer(layout.bytes));
    begin_push_request(frame(part).bytes(), table().id, view_version,
                       static_cast<uint32_t>(keys.size()), dim);
    std::memcpy(frame(part).data() + layout.keys, keys.data(), keys.size_bytes());
    std::memset(frame(part).data() + layout.values, 0, layout.bytes - layout.values);
  }
  add_gradients(gradients);
  return ok_status();
}

void PushOperation::add_gradients(std::span<const float> gradients) {
  const uint32_t dim = table().spec.dim;
  std::vector<float*> sums(plan().unique().size());
  for (size_t part = 0; part < plan().parts().size(); ++part) {
    const KeyPlan::Part& keys = plan().parts()[part];
    auto* sum =
        reinterpret_cast<float*>(frame(part).data() + push_request_layout(keys.count, dim).values);
    for (uint32_t i = 0; i < keys.count; ++i) sums[keys.first + i] = sum + size_t{i} * dim;
  }
  for (size_t i = 0; i < plan().size(); ++i) {
    float* sum = sums[plan().position(i)];
    for (uint32_t d = 0; d < dim; ++d) sum[d] += gradients[i * dim + d];
  }
}

Result<PushSummary> PushOperation::summarise() {
  PushSummary summary;
  summary.wire_bytes = request_bytes();
  size_t applied = 0;
  Status failure;
  for (size_t part = 0; part < plan().parts().size(); ++part) {
    Status status = answer(part).status();
    if (status.ok()) {
      const Buffer& frame = answer(part)->body;
      const auto response = parse_push_response(frame.bytes(), plan().parts()[part].count);
      status = response.status();
      if (response.ok()) {
        ++applied;
        summary.keys += response->keys;
        summary.created += response->created;
        summary.wire_bytes += frame.size();
      }
    }
    if (!status.ok() && failure.ok()) {
      failure = part_error("push to", part, status);
    }
  }
  if (failure.ok()) return summary;
  return Status(failure.code(), fmt::format("{} ({} of {} servers applied their part)",
                                            failure.message(), applied, plan().parts().size()));
}

}  // namespace be::ps
