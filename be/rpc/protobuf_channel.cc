#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <utility>

#include "be/rpc/protobuf.h"
#include "be/rpc/protobuf_body.h"

namespace be::rpc {
namespace {

// What the call's controller learns when it has ended.
void store_answer(const google::protobuf::MethodDescriptor& method, Result<Payload> answer,
                  google::protobuf::Message& response, Controller* controller) {
  Status status = answer.status();
  if (status.ok()) {
    status = parse_body(answer->body, response, Code::kProtocol);
    if (controller != nullptr) controller->response_attachment = std::move(answer->attachment);
  }
  if (controller != nullptr) controller->set_status(status.with_context(method.full_name()));
}

}  // namespace

void ProtobufChannel::CallMethod(const google::protobuf::MethodDescriptor* method,
                                 google::protobuf::RpcController* controller,
                                 const google::protobuf::Message* request,
                                 google::protobuf::Message* response,
                                 google::protobuf::Closure* done) {
  auto* const control = static_cast<Controller*>(controller);
  Result<Buffer> body = serialize_body(*request, channel_.node().pool());
  if (!body.ok()) {
    store_answer(*method, body.status(), *response, control);
    if (done != nullptr) done->Run();
    return;
  }
  Payload payload{std::move(body).value(), Buffer()};
  CallOptions options;
  std::atomic<CallId>* id = nullptr;
  if (control != nullptr) {
    payload.attachment = std::move(control->request_attachment);
    options = control->options();
    control->channel_ = &channel_;
    id = &control->call_;
  }
  const MethodId hash = method_id(method->full_name());
  if (done == nullptr) {
    store_answer(*method, channel_.call_and_wait(hash, std::move(payload), options, id), *response,
                 control);
    return;
  }
  channel_.call(
      hash, std::move(payload), options,
      [method, response, control, done](Result<Payload> answer) {
        store_answer(*method, std::move(answer), *response, control);
        done->Run();
      },
      id);
}

}  // namespace be::rpc
