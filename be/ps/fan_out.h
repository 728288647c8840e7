// FanOut: one operation in flight as several sub-requests, ended by the last of their answers.
//
//   prepared: every sub-request's frame is written, or the operation is refused and nothing sent
//   sent:     answers arrive on I/O threads, in any order, maybe at once
//   done:     the last answer runs `finish`, which alone sees all of them
//
// Shared by the callbacks; no lock: each answer has its own place, and the count of those that are
// outstanding orders them before finish().
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "be/ps/key_plan.h"
#include "be/ps/parameter_client.h"

namespace be::ps {

class FanOut : public std::enable_shared_from_this<FanOut> {
 public:
  using Channels = std::vector<std::unique_ptr<rpc::Channel>>;

  // `table` and `servers` live until finish() has run.
  FanOut(const RemoteTable& table, std::span<const Key> keys, const View& view,
         const std::vector<Address>& servers)
      : table_(table),
        servers_(servers),
        plan_(keys, view),
        frames_(plan_.parts().size()),
        answers_(plan_.parts().size()) {}
  virtual ~FanOut() = default;

  void send(const Channels& channels, rpc::MethodId method, const rpc::CallOptions& options);

 protected:
  virtual void finish() = 0;  // once, on the I/O thread of the last answer

  const RemoteTable& table() const { return table_; }
  const KeyPlan& plan() const { return plan_; }
  Buffer& frame(size_t part) { return frames_[part]; }
  Result<rpc::Payload>& answer(size_t part) { return *answers_[part]; }
  size_t request_bytes() const { return request_bytes_; }
  // "<operation> table 'm/t': server 2 (10.0.0.1:9002): <message>"
  Status part_error(const char* operation, size_t part, const Status& status) const;

 private:
  void on_answer(size_t part, Result<rpc::Payload> answer);

  const RemoteTable& table_;
  const std::vector<Address>& servers_;
  const KeyPlan plan_;
  std::vector<Buffer> frames_;
  std::vector<std::optional<Result<rpc::Payload>>> answers_;
  size_t request_bytes_ = 0;
  std::atomic<size_t> outstanding_{0};
};

}  // namespace be::ps
