#include "be/ps/fan_out.h"

#include <utility>

namespace be::ps {

void FanOut::send(const Channels& channels, rpc::MethodId method, const rpc::CallOptions& options) {
  const size_t parts = frames_.size();
  for (const Buffer& frame : frames_) request_bytes_ += frame.size();
  outstanding_.store(parts);
  const std::shared_ptr<FanOut> self = shared_from_this();
  for (size_t part = 0; part < parts; ++part) {
    channels[plan_.parts()[part].server]->call(
        method, {std::move(frames_[part]), {}}, options,
        [self, part](Result<rpc::Payload> answer) { self->on_answer(part, std::move(answer)); });
  }
}

void FanOut::on_answer(size_t part, Result<rpc::Payload> answer) {
  answers_[part].emplace(std::move(answer));
  if (outstanding_.fetch_sub(1) == 1) finish();
}

Status FanOut::part_error(const char* operation, size_t part, const Status& status) const {
  const uint32_t server = plan_.parts()[part].server;
  return status.with_context(fmt::format("{} table '{}': server {} ({})", operation, table_.name,
                                         server, servers_[server].to_string()));
}

}  // namespace be::ps
