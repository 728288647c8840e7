// A parameter server and a client that sends Fetches, Pushes and protobuf control calls cut and
// bent, over rpc frames by the rules.
//
// Every call has one answer; what a Fetch brings is what was asked for; a Push is counted whole or
// not at all; at the end all memory is back.
#include <map>

#include "be/ps/parameter_server.h"
#include "be/ps/parameter_service.pb.h"
#include "be/ps/wire.h"
#include "tests/fuzz/common/wild_client.h"

namespace {

using namespace be;
using namespace be::fuzz;

constexpr uint32_t kDim = 3;

class Story {
 public:
  Story(rpc::FakeNode& node, Input& input) : node_(node), input_(input), client_(node) {}

  void tell() {
    ps::ParameterServerOptions options;
    options.max_tables = 3;
    options.limits = {.max_keys = 64, .max_bytes = 4096};
    server_ = ps::ParameterServer::create(node_, options).value();
    MUST_HOLD(server_->listen(rpc::fake_address(1)).ok());
    node_.connect(rpc::fake_address(1), {}, &client_);
    run();
    create_table("t", kDim);
    run();
    for (int step = 0; step < 100 && !input_.empty(); ++step) act();
    run();
    judge();
    MUST_HOLD(client_.unanswered() == 0);
    MUST_HOLD(client_.open());
    client_.close();
    run();
    server_.reset();
    run();
    node_.sockets_.clear();
    MUST_HOLD(node_.pool().stats().live_bytes == 0);
  }

 private:
  void run() {
    for (int i = 0; i < 3; ++i) {
      node_.run();
      node_.workers().run();
    }
    node_.run();
  }

  void act() {
    switch (input_.below(8)) {
      case 0:
      case 1:
        fetch();
        break;
      case 2:
      case 3:
        push();
        break;
      case 4:
        control();
        break;
      case 5:
        create_table(std::string(1 + input_.u8() % 3, static_cast<char>(input_.u8())),
                     input_.flag() ? input_.u32() : kDim);
        break;
      case 6:
        run();
        judge();
        break;
      case 7:
        call(methods()[input_.u8() % methods().size()], input_.bytes(input_.u8()));
        break;
    }
  }

  static const std::vector<std::string>& methods() {
    static const std::vector<std::string> kAll = {ps::kFetchMethod,
                                                  ps::kPushMethod,
                                                  "be.ps.ParameterService.CreateTable",
                                                  "be.ps.ParameterService.DescribeTable",
                                                  "be.ps.ParameterService.DescribeServer",
                                                  "be.ps.ParameterService.Stats"};
    return kAll;
  }

  uint64_t call(const std::string& method, std::span<const uint8_t> body) {
    return client_.ask(rpc::method_id(method), body);
  }

  // `frame` with some bytes changed, or cut.
  void bend(std::vector<uint8_t>& frame, bool* was_bent) {
    const uint8_t bends = input_.u8() % 4;
    for (uint8_t i = 0; i < bends && !frame.empty(); ++i) {
      *was_bent = true;
      if (input_.flag()) {
        frame.resize(input_.u16() % (2 * frame.size() + 1));
      } else {
        frame[input_.u16() % frame.size()] = input_.u8();
      }
    }
  }

  void write_keys(std::vector<uint8_t>& frame, size_t at, uint32_t keys) {
    for (uint32_t i = 0; i < keys; ++i) {
      const ps::Key key = input_.u8();
      std::memcpy(frame.data() + at + i * sizeof(key), &key, sizeof(key));
    }
  }

  void fetch() {
    const uint32_t keys = 1 + input_.u8() % 70;
    const ps::FetchLayout layout = ps::fetch_request_layout(keys);
    std::vector<uint8_t> frame(layout.bytes);
    ps::begin_fetch_request(frame, ps::table_id("m/t"), 1, keys);
    write_keys(frame, layout.keys, keys);
    bool was_bent = false;
    bend(frame, &was_bent);
    const uint64_t id = call(ps::kFetchMethod, frame);
    if (!was_bent) fetches_[id] = keys;
  }

  void push() {
    const uint32_t keys = 1 + input_.u8() % 20;
    const uint32_t dim = input_.u8() == 7 ? input_.u8() : kDim;
    const ps::RowsLayout layout = ps::push_request_layout(keys, dim);
    std::vector<uint8_t> frame(layout.bytes);
    ps::begin_push_request(frame, ps::table_id("m/t"), 1, keys, dim);
    write_keys(frame, layout.keys, keys);
    const float gradient = input_.u8();
    for (size_t at = layout.values; at < layout.bytes; at += sizeof(gradient)) {
      std::memcpy(frame.data() + at, &gradient, sizeof(gradient));
    }
    bool was_bent = false;
    bend(frame, &was_bent);
    const uint64_t id = call(ps::kPushMethod, frame);
    if (!was_bent && dim == kDim) pushes_[id] = keys;
  }

  void create_table(const std::string& name, uint32_t dim) {
    ps::CreateTableRequest request;
    ps::TableProperties& table = *request.mutable_table();
    table.set_model("m");
    table.set_name(name);
    table.set_dim(dim);
    table.set_optimizer(static_cast<uint32_t>(ps::OptimizerKind::kSgd));
    table.set_learning_rate(0.5f);
    table.set_initial_scale(0.1f);
    send_protobuf("be.ps.ParameterService.CreateTable", request);
  }

  void control() {
    ps::DescribeTableRequest request;
    request.set_model("m");
    request.set_name(input_.flag() ? "t" : "u");
    send_protobuf("be.ps.ParameterService.DescribeTable", request);
  }

  void send_protobuf(const std::string& method, const google::protobuf::Message& request) {
    const std::string text = request.SerializeAsString();
    std::vector<uint8_t> bytes(text.begin(), text.end());
    bool was_bent = false;
    if (created_) bend(bytes, &was_bent);
    created_ = true;
    call(method, bytes);
  }

  void judge() {
    for (const WildClient::Answer& answer : client_.answers) {
      if (const auto asked = fetches_.find(answer.call_id); asked != fetches_.end()) {
        if (asked->second > 64) {
          MUST_HOLD(answer.code == static_cast<uint8_t>(Code::kInvalidArgument));
        } else {
          MUST_HOLD(answer.code == 0);
          MUST_HOLD(ps::parse_fetch_response(answer.payload.attachment.bytes(), asked->second, kDim)
                        .ok());
        }
        fetches_.erase(asked);
      }
      if (const auto asked = pushes_.find(answer.call_id); asked != pushes_.end()) {
        MUST_HOLD(answer.code == 0);
        MUST_HOLD(ps::parse_push_response(answer.payload.body.bytes(), asked->second).ok());
        pushes_.erase(asked);
      }
    }
    client_.answers.clear();
  }

  rpc::FakeNode& node_;
  Input& input_;
  WildClient client_;
  std::unique_ptr<ps::ParameterServer> server_;
  std::map<uint64_t, uint32_t> fetches_;  // by the rules: their keys
  std::map<uint64_t, uint32_t> pushes_;
  bool created_ = false;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static auto* const node = new rpc::FakeNode();
  Input input(data, size);
  Story(*node, input).tell();
  return 0;
}
