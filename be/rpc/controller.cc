#include "be/rpc/protobuf.h"

namespace be::rpc {

void Controller::Reset() {
  request_attachment.reset();
  response_attachment.reset();
  options_ = CallOptions();
  status_ = Status();
  deadline_ = Time();
  channel_ = nullptr;
  call_ = 0;
  server_call_ = nullptr;
}

void Controller::StartCancel() {
  if (const CallId call = call_; call != 0) channel_->cancel(call);
}

void Controller::SetFailed(const std::string& reason) { status_ = Status(Code::kInternal, reason); }

bool Controller::IsCanceled() const { return server_call_ != nullptr && server_call_->cancelled(); }

void Controller::NotifyOnCancel(google::protobuf::Closure* callback) {
  if (server_call_ == nullptr) return callback->Run();
  server_call_->on_cancel([callback] { callback->Run(); });
}

}  // namespace be::rpc
