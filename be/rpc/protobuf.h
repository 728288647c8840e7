// Services in protobuf over Channel and Server: google::protobuf::RpcChannel and Service.
//
//   EchoService::Stub stub(&protobuf_channel);
//   rpc::Controller controller;
//   stub.Echo(&controller, &request, &response, nullptr);      // done == nullptr: waits
//
// The .proto file needs `option cc_generic_services = true;`. Attachments of the controller
// travel beside the message without a copy. A failed call sets controller.status().
#pragma once

#include <google/protobuf/service.h>

#include <atomic>
#include <string>
#include <utility>

#include "be/rpc/channel.h"
#include "be/rpc/server.h"

namespace be::rpc {

// State of one call, on either side. Reset() makes it new; not while its call runs.
class Controller final : public google::protobuf::RpcController {
 public:
  Controller() = default;

  // Client: before the call.
  void set_timeout(Nanoseconds timeout) { options_.timeout = timeout; }
  const CallOptions& options() const { return options_; }

  // Travels with the request (set by the client, read by the server) or with the response.
  Buffer request_attachment;
  Buffer response_attachment;

  const Status& status() const { return status_; }
  void set_status(Status status) { status_ = std::move(status); }
  Time deadline() const { return deadline_; }
  void set_deadline(Time deadline) { deadline_ = deadline; }

  void Reset() override;
  bool Failed() const override { return !status_.ok(); }
  std::string ErrorText() const override { return status_.to_string(); }
  // Client, any thread, while the call runs: it ends with kCancelled and the server is told.
  void StartCancel() override;
  // Server: kInternal; set_status says more.
  void SetFailed(const std::string& reason) override;
  // Server. The callback of NotifyOnCancel runs once: on cancellation, else after the answer.
  bool IsCanceled() const override;
  void NotifyOnCancel(google::protobuf::Closure* callback) override;

 private:
  friend class ProtobufChannel;
  friend class ServiceCall;
  CallOptions options_;
  Status status_;
  Time deadline_{};
  Channel* channel_ = nullptr;         // client
  std::atomic<CallId> call_{0};        // client: 0 while it has not begun
  ServerCall* server_call_ = nullptr;  // server
};

// A controller given to its stubs is a be::rpc::Controller, or null: then a failure is not told.
// `done` runs on the channel's I/O thread; a call that fails before it is sent runs it at once.
// The response is valid only if the controller has not failed.
class ProtobufChannel final : public google::protobuf::RpcChannel {
 public:
  explicit ProtobufChannel(Channel& channel) : channel_(channel) {}
  void CallMethod(const google::protobuf::MethodDescriptor* method,
                  google::protobuf::RpcController* controller,
                  const google::protobuf::Message* request, google::protobuf::Message* response,
                  google::protobuf::Closure* done) override;

 private:
  Channel& channel_;
};

// Registers every method of `service`, which must outlive the server. The service's methods get a
// be::rpc::Controller with deadline() and the request's attachment, and run `done` from any thread;
// a request that does not parse is answered with kInvalidArgument without them.
Status add_service(Server& server, google::protobuf::Service* service,
                   RunOn run_on = RunOn::kWorkers);

}  // namespace be::rpc
