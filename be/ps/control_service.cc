#include "be/ps/control_service.h"

#include "be/base/cpu_time.h"
#include "be/rpc/protobuf.h"

namespace be::ps {
namespace {

void set_status(google::protobuf::RpcController* controller, const Status& status) {
  static_cast<rpc::Controller*>(controller)->set_status(status);
}

}  // namespace

TableProperties to_properties(const TableSpec& spec) {
  TableProperties properties;
  properties.set_model(spec.model);
  properties.set_name(spec.name);
  properties.set_dim(spec.dim);
  properties.set_optimizer(static_cast<uint32_t>(spec.optimizer.kind));
  properties.set_learning_rate(spec.optimizer.learning_rate);
  properties.set_initial_accumulator(spec.optimizer.initial_accumulator);
  properties.set_initial_scale(spec.initial_scale);
  properties.set_seed(spec.seed);
  return properties;
}

TableSpec to_spec(const TableProperties& properties) {
  TableSpec spec;
  spec.model = properties.model();
  spec.name = properties.name();
  spec.dim = properties.dim();
  // 0 is no optimizer: check() refuses it.
  spec.optimizer.kind =
      static_cast<OptimizerKind>(properties.optimizer() <= UINT8_MAX ? properties.optimizer() : 0);
  spec.optimizer.learning_rate = properties.learning_rate();
  spec.optimizer.initial_accumulator = properties.initial_accumulator();
  spec.initial_scale = properties.initial_scale();
  spec.seed = properties.seed();
  return spec;
}

void ControlService::CreateTable(google::protobuf::RpcController* controller,
                                 const CreateTableRequest* request, CreateTableResponse* response,
                                 google::protobuf::Closure* done) {
  const Result<bool> created = core_.tables.create(to_spec(request->table()));
  if (created.ok()) {
    response->set_created(*created);
  } else {
    set_status(controller, created.status());
  }
  done->Run();
}

void ControlService::DescribeTable(google::protobuf::RpcController* controller,
                                   const DescribeTableRequest* request,
                                   DescribeTableResponse* response,
                                   google::protobuf::Closure* done) {
  const Result<Table*> table = core_.tables.find(request->model() + "/" + request->name());
  if (table.ok()) {
    *response->mutable_table() = to_properties((*table)->spec());
  } else {
    set_status(controller, table.status());
  }
  done->Run();
}

void ControlService::DescribeServer(google::protobuf::RpcController*, const DescribeServerRequest*,
                                    DescribeServerResponse* response,
                                    google::protobuf::Closure* done) {
  response->set_view_version(core_.view.version());
  response->set_server_index(core_.server_index);
  response->set_server_count(core_.view.servers());
  response->set_virtual_shards(kVirtualShards);
  done->Run();
}

void ControlService::Stats(google::protobuf::RpcController*, const StatsRequest*,
                           StatsResponse* response, google::protobuf::Closure* done) {
  for (const Table* table : core_.tables.list()) {
    TableStats* stats = response->add_tables();
    const Table::Size size = table->size();
    stats->set_name(table->spec().full_name());
    stats->set_rows(size.rows);
    stats->set_memory_bytes(size.memory_bytes);
  }
  const ServerCounters& counters = core_.counters;
  response->set_fetches(counters.fetches.load(std::memory_order_relaxed));
  response->set_fetched_keys(counters.fetched_keys.load(std::memory_order_relaxed));
  response->set_missing_keys(counters.missing_keys.load(std::memory_order_relaxed));
  response->set_pushes(counters.pushes.load(std::memory_order_relaxed));
  response->set_pushed_keys(counters.pushed_keys.load(std::memory_order_relaxed));
  response->set_refused(counters.refused.load(std::memory_order_relaxed));
  const PoolStats memory = pool_.stats();
  response->set_registered_bytes(memory.registered_bytes);
  response->set_peak_registered_bytes(memory.peak_registered_bytes);
  const CpuTime cpu = this_process_cpu_time();
  response->set_cpu_user_ns(static_cast<uint64_t>(cpu.user.count()));
  response->set_cpu_system_ns(static_cast<uint64_t>(cpu.system.count()));
  done->Run();
}

}  // namespace be::ps
