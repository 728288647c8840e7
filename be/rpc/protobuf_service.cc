#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <memory>
#include <utility>

#include "be/rpc/protobuf.h"
#include "be/rpc/protobuf_body.h"

namespace be::rpc {

// One call of a service's method; it is the method's `done`, and ends itself when it is run.
class ServiceCall final : public google::protobuf::Closure {
 public:
  static void start(ServerCall call, google::protobuf::Service& service,
                    const google::protobuf::MethodDescriptor* method, RegisteredPool& pool);
  void Run() override;

 private:
  ServiceCall(ServerCall call, google::protobuf::Service& service,
              const google::protobuf::MethodDescriptor* method, RegisteredPool& pool)
      : call_(std::move(call)),
        pool_(pool),
        request_(service.GetRequestPrototype(method).New()),
        response_(service.GetResponsePrototype(method).New()) {}

  ServerCall call_;
  RegisteredPool& pool_;
  const std::unique_ptr<google::protobuf::Message> request_;
  const std::unique_ptr<google::protobuf::Message> response_;
  Controller controller_;
};

void ServiceCall::start(ServerCall call, google::protobuf::Service& service,
                        const google::protobuf::MethodDescriptor* method, RegisteredPool& pool) {
  auto* const self = new ServiceCall(std::move(call), service, method, pool);  // until Run()
  ServerCall& inner = self->call_;
  if (const Status status = parse_body(inner.body(), *self->request_, Code::kInvalidArgument);
      !status.ok()) {
    self->controller_.set_status(status);
    return self->Run();
  }
  inner.body().reset();
  self->controller_.request_attachment = std::move(inner.attachment());
  self->controller_.set_deadline(inner.deadline());
  self->controller_.server_call_ = &inner;
  service.CallMethod(method, &self->controller_, self->request_.get(), self->response_.get(), self);
}

void ServiceCall::Run() {
  const std::unique_ptr<ServiceCall> ended(this);
  if (controller_.Failed()) return call_.fail(controller_.status());
  Result<Buffer> body = serialize_body(*response_, pool_);
  if (!body.ok()) return call_.fail(body.status());
  call_.reply({std::move(body).value(), std::move(controller_.response_attachment)});
}

Status add_service(Server& server, google::protobuf::Service* service, RunOn run_on) {
  const google::protobuf::ServiceDescriptor* const type = service->GetDescriptor();
  for (int i = 0; i < type->method_count(); ++i) {
    const google::protobuf::MethodDescriptor* const method = type->method(i);
    BE_RETURN_IF_ERROR(
        server.add_method(method->full_name(), run_on,
                          [service, method, &pool = server.node().pool()](ServerCall call) {
                            ServiceCall::start(std::move(call), *service, method, pool);
                          }));
  }
  return {};
}

}  // namespace be::rpc
