// ControlService: the protobuf service be.ps.ParameterService of one server.
//
// Runs on the server's workers; every failure is set on the controller with its Code and names
// the table. Owned by the ParameterServer.
#pragma once

#include "be/memory/registered_pool.h"
#include "be/ps/parameter_service.pb.h"
#include "be/ps/server_core.h"

namespace be::ps {

TableProperties to_properties(const TableSpec& spec);
TableSpec to_spec(const TableProperties& properties);  // unchecked

class ControlService final : public ParameterService {
 public:
  ControlService(ServerCore& core, RegisteredPool& pool) : core_(core), pool_(pool) {}

  void CreateTable(google::protobuf::RpcController* controller, const CreateTableRequest* request,
                   CreateTableResponse* response, google::protobuf::Closure* done) override;
  void DescribeTable(google::protobuf::RpcController* controller,
                     const DescribeTableRequest* request, DescribeTableResponse* response,
                     google::protobuf::Closure* done) override;
  void DescribeServer(google::protobuf::RpcController* controller,
                      const DescribeServerRequest* request, DescribeServerResponse* response,
                      google::protobuf::Closure* done) override;
  void Stats(google::protobuf::RpcController* controller, const StatsRequest* request,
             StatsResponse* response, google::protobuf::Closure* done) override;

 private:
  ServerCore& core_;
  RegisteredPool& pool_;
};

}  // namespace be::ps
