#include "be/rpc/channel.h"

#include <optional>
#include <utility>

#include "be/base/fork.h"
#include "be/rpc/channel_core.h"
#include "be/transport/run_on.h"

namespace be::rpc {
namespace {

class ChannelImpl final : public Channel {
 public:
  ChannelImpl(Node& node, const Address& server, const ChannelOptions& options)
      : core_(std::make_shared<ChannelCore>(node, server, options)) {}

  ~ChannelImpl() override {
    if (core_->forked()) {
      abandon(std::move(core_));
      return;
    }
    run_on(core_->thread(), [this] { core_->shut_down(); });
  }

  CallId call(MethodId method, Payload request, const CallOptions& options,
              ResponseCallback callback, std::atomic<CallId>* early_id) override {
    return core_->call(method, std::move(request), options, std::move(callback), early_id);
  }

  void cancel(CallId call) override { core_->cancel(call); }

  Result<Payload> call_and_wait(MethodId method, Payload request, const CallOptions& options,
                                std::atomic<CallId>* early_id) override;

  const Address& server() const override { return core_->server(); }
  Node& node() override { return core_->node(); }
  std::optional<TransportKind> transport() const override { return core_->transport(); }
  uint64_t late_responses() const override { return core_->late_responses(); }

 private:
  std::shared_ptr<ChannelCore> core_;
};

Result<Payload> ChannelImpl::call_and_wait(MethodId method, Payload request,
                                           const CallOptions& options,
                                           std::atomic<CallId>* early_id) {
  if (core_->forked()) return core_->forked_error();
  IoThread& thread = core_->thread();
  const NodeOptions& node = core_->node().options();
  std::optional<Result<Payload>> answer;
  if (!thread.on_this_thread()) {
    const std::unique_ptr<Gate> answered = thread.world().executor().make_gate();
    call(
        method, std::move(request), options,
        [&](Result<Payload> result) {
          answer.emplace(std::move(result));
          answered->open();
        },
        early_id);
    answered->wait();
    return *std::move(answer);
  }
  if (!node.driven) {
    return error(Code::kInvalidArgument,
                 "call_and_wait on the channel's I/O thread would wait for itself");
  }
  call(
      method, std::move(request), options,
      [&](Result<Payload> result) { answer.emplace(std::move(result)); }, early_id);
  thread.run_until([&] { return answer.has_value(); }, kNever, node.spin_forever);
  return *std::move(answer);
}

}  // namespace

std::unique_ptr<Channel> Channel::create(Node& node, const Address& server,
                                         const ChannelOptions& options) {
  return std::make_unique<ChannelImpl>(node, server, options);
}

}  // namespace be::rpc
