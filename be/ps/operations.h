// The two operations of a ParameterClient, as FanOuts: Fetch and Push.
//
// prepare() writes the frames into registered Buffers, or fails and leaves nothing behind; then
// send(). The callback runs in finish(), on the I/O thread of the last answer.
#pragma once

#include <utility>

#include "be/memory/registered_pool.h"
#include "be/ps/fan_out.h"

namespace be::ps {

class FetchOperation final : public FanOut {
 public:
  using FanOut::FanOut;

  Status prepare(RegisteredPool& pool, uint32_t view_version, const Limits& limits);
  void on_finish(FetchCallback callback) { callback_ = std::move(callback); }

 private:
  void finish() override { callback_(gather()); }
  Result<FetchedRows> gather();

  FetchCallback callback_;
};

class PushOperation final : public FanOut {
 public:
  using FanOut::FanOut;

  // gradients: dim for each of the caller's keys.
  Status prepare(RegisteredPool& pool, uint32_t view_version, const Limits& limits,
                 std::span<const float> gradients);
  void on_finish(PushCallback callback) { callback_ = std::move(callback); }

 private:
  void finish() override { callback_(summarise()); }
  Result<PushSummary> summarise();
  void add_gradients(std::span<const float> gradients);

  PushCallback callback_;
};

}  // namespace be::ps
