#include "faulty_device.h"

#include <cerrno>
#include <cstring>

#include "be/verbs/errors.h"
#include "tests/common/must_hold.h"

namespace be::test {
namespace {

// Whose objects these are: the data path has no place for a pointer of ours.
struct Hook {
  FaultyDevice* device;
  ibv_context_ops inner;
};
std::map<ibv_context*, Hook> hooks;

}  // namespace

const char* name_of(SetUpCall call) {
  switch (call) {
    case SetUpCall::kCreateEventChannel:
      return "CreateEventChannel";
    case SetUpCall::kCreateThreadDomain:
      return "CreateThreadDomain";
    case SetUpCall::kCreateCq:
      return "CreateCq";
    case SetUpCall::kCreateQp:
      return "CreateQp";
    case SetUpCall::kRegisterMemory:
      return "RegisterMemory";
    case SetUpCall::kRegisterKeepaliveWord:
      return "RegisterKeepaliveWord";
    case SetUpCall::kPostReceives:
      return "PostReceives";
    case SetUpCall::kLocalEndpoint:
      return "LocalEndpoint";
    case SetUpCall::kReachable:
      return "Reachable";
    case SetUpCall::kConnectQp:
      return "ConnectQp";
    case SetUpCall::kConnected:
      return "Connected";
  }
  return "unknown";
}

// The inner channel, but that a connection may turn out to have failed.
class FaultyDevice::Channel final : public EventChannel {
 public:
  Channel(FaultyDevice& device, std::unique_ptr<EventChannel> inner)
      : device_(device), inner_(std::move(inner)) {}
  ~Channel() override { --device_.created_.channels; }

  int fd() const override { return inner_->fd(); }
  void take_events(std::vector<DeviceEvent>& out) override {
    const size_t first = out.size();
    inner_->take_events(out);
    for (size_t i = first; i < out.size(); ++i) {
      if (out[i].kind == DeviceEvent::Kind::kConnected && device_.fails(SetUpCall::kConnected)) {
        out[i].status = error(Code::kUnavailable, "the connection failed by order");
      }
    }
  }
  EventChannel* inner() { return inner_.get(); }

 private:
  FaultyDevice& device_;
  const std::unique_ptr<EventChannel> inner_;
};

FaultyDevice::~FaultyDevice() {
  MUST_HOLD(created_ == Created{});
  hooks.erase(inner_->pd()->context);
}

bool FaultyDevice::fails(SetUpCall call) {
  int& left = failures_left_[call];
  if (left == 0) return false;
  --left;
  return true;
}

Result<ibv_mr*> FaultyDevice::register_memory(void* address, size_t length, int access,
                                              const Backing& backing) {
  const bool keepalive = length == kKeepaliveBytes;
  if (fails(keepalive ? SetUpCall::kRegisterKeepaliveWord : SetUpCall::kRegisterMemory)) {
    return verb_error("ibv_reg_mr", ENOMEM, name());
  }
  Result<ibv_mr*> region = inner_->register_memory(address, length, access, backing);
  if (keepalive && region.ok()) ++created_.keepalive_words;
  return region;
}

Status FaultyDevice::deregister(ibv_mr* region) {
  if (region->length == kKeepaliveBytes) --created_.keepalive_words;
  return inner_->deregister(region);
}

Result<std::unique_ptr<EventChannel>> FaultyDevice::create_event_channel() {
  if (fails(SetUpCall::kCreateEventChannel)) {
    return verb_error("ibv_create_comp_channel", EMFILE, name());
  }
  BE_ASSIGN_OR_RETURN(std::unique_ptr<EventChannel> inner, inner_->create_event_channel());
  ++created_.channels;
  return std::unique_ptr<EventChannel>(std::make_unique<Channel>(*this, std::move(inner)));
}

Result<ibv_td*> FaultyDevice::create_thread_domain() {
  if (fails(SetUpCall::kCreateThreadDomain)) return verb_error("ibv_alloc_td", ENOMEM, name());
  BE_ASSIGN_OR_RETURN(ibv_td * domain, inner_->create_thread_domain());
  if (domain != nullptr) ++created_.thread_domains;
  return domain;
}

void FaultyDevice::destroy_thread_domain(ibv_td* domain) {
  --created_.thread_domains;
  inner_->destroy_thread_domain(domain);
}

Result<ibv_cq*> FaultyDevice::create_cq(uint32_t entries, EventChannel* channel, void* user,
                                        ibv_td* thread_domain) {
  if (fails(SetUpCall::kCreateCq)) return verb_error("ibv_create_cq", ENOMEM, name());
  BE_ASSIGN_OR_RETURN(
      ibv_cq * cq,
      inner_->create_cq(entries, static_cast<Channel*>(channel)->inner(), user, thread_domain));
  ++created_.completion_queues;
  hook(cq->context);
  return cq;
}

Status FaultyDevice::destroy_cq(ibv_cq* cq) {
  Status status = inner_->destroy_cq(cq);
  if (status.ok()) --created_.completion_queues;
  return status;
}

Result<QueuePair> FaultyDevice::create_qp(const QueuePairOptions& options) {
  if (fails(SetUpCall::kCreateQp)) return verb_error("ibv_create_qp", ENOMEM, name());
  BE_ASSIGN_OR_RETURN(const QueuePair made, inner_->create_qp(options));
  ++created_.queue_pairs;
  return made;
}

void FaultyDevice::hook(ibv_context* context) {
  if (!hooks.try_emplace(context, Hook{this, context->ops}).second) return;
  context->ops.post_recv = post_recv;
  context->ops.poll_cq = poll_cq;
  context->ops.req_notify_cq = req_notify_cq;
}

int FaultyDevice::post_recv(ibv_qp* qp, ibv_recv_wr* request, ibv_recv_wr** bad) {
  const Hook& hook = hooks.at(qp->context);
  if (hook.device->fails(SetUpCall::kPostReceives)) {
    *bad = request;
    return ENOMEM;
  }
  return hook.inner.post_recv(qp, request, bad);
}

int FaultyDevice::poll_cq(ibv_cq* cq, int count, ibv_wc* completions) {
  const Hook& hook = hooks.at(cq->context);
  FaultyDevice& device = *hook.device;
  if (device.hide_until_armed_ && !std::exchange(device.just_armed_, false)) return 0;
  const int taken = hook.inner.poll_cq(cq, count, completions);
  if (device.hide_until_armed_) device.taken_after_arming_ += taken;
  for (int i = 0; i < taken; ++i) {
    if (device.poison_failures_ && completions[i].status != IBV_WC_SUCCESS) {
      device.poison(completions[i]);
    }
  }
  return taken;
}

int FaultyDevice::req_notify_cq(ibv_cq* cq, int solicited_only) {
  const Hook& hook = hooks.at(cq->context);
  hook.device->just_armed_ = true;
  return hook.inner.req_notify_cq(cq, solicited_only);
}

void FaultyDevice::poison(ibv_wc& completion) {
  (completion.status == IBV_WC_WR_FLUSH_ERR ? failures_.flushes : failures_.causes) += 1;
  ibv_wc poisoned;
  std::memset(&poisoned, 0x5a, sizeof(poisoned));
  poisoned.wr_id = completion.wr_id;
  poisoned.status = completion.status;
  poisoned.qp_num = completion.qp_num;
  poisoned.vendor_err = completion.vendor_err;
  completion = poisoned;
}

Result<EndpointBlob> FaultyDevice::local_endpoint(ibv_qp* qp) {
  if (fails(SetUpCall::kLocalEndpoint)) return verb_error("ibv_query_gid", EIO, name());
  return inner_->local_endpoint(qp);
}

Status FaultyDevice::reachable(const EndpointBlob& remote) {
  if (fails(SetUpCall::kReachable)) return verb_error("ibv_create_ah", EHOSTUNREACH, name());
  return inner_->reachable(remote);
}

Status FaultyDevice::connect_qp(ibv_qp* qp, const EndpointBlob& remote,
                                const uint8_t secret_token[16], bool initiator,
                                const ConnectOptions& options) {
  if (fails(SetUpCall::kConnectQp)) return verb_error("ibv_modify_qp", ETIMEDOUT, name());
  EndpointBlob to = remote;
  if (lose_packets_) to.assign(to.size(), 0xff);  // of a queue pair that there will never be
  return inner_->connect_qp(qp, to, secret_token, initiator, options);
}

Result<QuiesceToken> FaultyDevice::retire_qp(ibv_qp* qp) {
  Result<QuiesceToken> token = inner_->retire_qp(qp);
  if (token.ok()) --created_.queue_pairs;
  return token;
}

}  // namespace be::test
