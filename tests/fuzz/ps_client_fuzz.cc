// A parameter client and two servers that answer what they like: control calls with bent protobuf,
// Fetches and Pushes with bent frames, with errors, or never.
//
// Every operation ends exactly once, in virtual time; what a Fetch returns has a row for each key;
// at the end all memory is back.
#include "be/ps/parameter_client.h"
#include "be/rpc/frame.h"
#include "tests/common/must_hold.h"
#include "tests/fuzz/common/input.h"
#include "tests/unit/rpc/fake_node.h"

namespace {

using namespace be;
using namespace be::fuzz;

constexpr uint32_t kDim = 3;
constexpr uint32_t kServers = 2;

class WildServer final : public SocketHandler {
 public:
  WildServer(rpc::FakeNode& node, Input& input, uint32_t index)
      : node_(node), input_(input), index_(index) {
    listener_ = node.listen(rpc::fake_address(static_cast<uint16_t>(1 + index)),
                            [this](Socket&) { return static_cast<SocketHandler*>(this); })
                    .value();
  }

  void on_open(Socket&) override {}
  void on_message(Socket& socket, Buffer message) override {
    rpc::FrameHeader asked;
    MUST_HOLD(rpc::parse_frame(message, asked).ok());
    if (asked.type != rpc::FrameType::kRequest) return;
    const rpc::Payload request = rpc::split_frame(asked, std::move(message));
    rpc::FrameHeader header;
    header.type = rpc::FrameType::kResponse;
    header.call_id = asked.call_id;
    const uint8_t mood = honest ? 0 : input_.u8();
    if (mood == 1) return;  // never
    std::vector<uint8_t> body;
    std::vector<uint8_t> attachment;
    answer(asked.method, request, &body, &attachment);
    if (mood >= 2 && mood < 100) bend(mood < 50 ? body : attachment);
    if (mood == 100) {
      header.code = 1 + input_.u8() % 10;
      attachment.clear();
    }
    header.body_bytes = static_cast<uint32_t>(body.size());
    header.attachment_bytes = static_cast<uint32_t>(attachment.size());
    std::vector<uint8_t> bytes(sizeof(header));
    std::memcpy(bytes.data(), &header, sizeof(header));
    bytes.insert(bytes.end(), body.begin(), body.end());
    bytes.insert(bytes.end(), attachment.begin(), attachment.end());
    if (mood == 101) bytes.resize(bytes.size() / 2);
    Buffer buffer = node_.pool().allocate_buffer(bytes.size()).value();
    std::memcpy(buffer.data(), bytes.data(), bytes.size());
    Message out(std::move(buffer));
    socket.send(out, 0).ignore();
    if (mood == 102) socket.close();
  }
  void on_sent(Socket&, uint64_t, const Status&) override {}
  void on_closed(Socket&, const Status&) override {}

  bool honest = true;

 private:
  template <typename Proto>
  static std::vector<uint8_t> bytes_of(const Proto& message) {
    const std::string text = message.SerializeAsString();
    return {text.begin(), text.end()};
  }

  void answer(uint32_t method, const rpc::Payload& request, std::vector<uint8_t>* body,
              std::vector<uint8_t>* attachment) const {
    const ps::Limits limits;
    if (method == rpc::method_id(ps::kFetchMethod)) {
      const auto fetch = ps::parse_fetch_request(request.body.bytes(), limits);
      MUST_HOLD(fetch.ok());
      const auto keys = static_cast<uint32_t>(fetch->keys.size());
      attachment->assign(ps::fetch_response_layout(keys, kDim).bytes, 0);
      ps::begin_fetch_response(*attachment, keys, kDim);
    } else if (method == rpc::method_id(ps::kPushMethod)) {
      const auto push = ps::parse_push_request(request.body.bytes(), limits);
      MUST_HOLD(push.ok());
      body->assign(ps::kPushResponseBytes, 0);
      ps::write_push_response(*body, {static_cast<uint32_t>(push->keys.size()), 0});
    } else if (method == rpc::method_id("be.ps.ParameterService.DescribeServer")) {
      ps::DescribeServerResponse response;
      response.set_view_version(1);
      response.set_server_index(index_);
      response.set_server_count(kServers);
      response.set_virtual_shards(ps::kVirtualShards);
      *body = bytes_of(response);
    } else if (method == rpc::method_id("be.ps.ParameterService.DescribeTable")) {
      ps::DescribeTableResponse response;
      response.mutable_table()->set_model("m");
      response.mutable_table()->set_name("t");
      response.mutable_table()->set_dim(kDim);
      response.mutable_table()->set_optimizer(static_cast<uint32_t>(ps::OptimizerKind::kSgd));
      response.mutable_table()->set_learning_rate(0.5f);
      *body = bytes_of(response);
    } else if (method == rpc::method_id("be.ps.ParameterService.Stats")) {
      ps::StatsResponse response;
      response.add_tables()->set_name("m/t");
      *body = bytes_of(response);
    }
  }

  void bend(std::vector<uint8_t>& bytes) {
    if (input_.flag()) bytes.resize(input_.u8() % (2 * bytes.size() + 8));
    for (uint8_t bends = input_.u8() % 4; bends > 0 && !bytes.empty(); --bends) {
      bytes[input_.u8() % bytes.size()] = input_.u8();
    }
  }

  rpc::FakeNode& node_;
  Input& input_;
  const uint32_t index_;
  std::unique_ptr<Listener> listener_;
};

class Story {
 public:
  Story(rpc::FakeNode& node, Input& input)
      : node_(node), input_(input), first_(node, input, 0), second_(node, input, 1) {}

  void tell() {
    set_honest(input_.u8() % 4 != 0);
    ps::ParameterClientOptions options;
    options.servers = {rpc::fake_address(1), rpc::fake_address(2)};
    auto connected = ps::ParameterClient::connect(node_, options);
    if (!connected.ok()) {
      MUST_HOLD(!first_.honest);
      return end();
    }
    client_ = std::move(*connected);
    set_honest(input_.u8() % 4 != 0);
    const auto table = client_->open_table("m", "t");
    MUST_HOLD(table.ok() || !first_.honest);
    set_honest(false);
    for (int step = 0; step < 60 && !input_.empty() && table.ok(); ++step) act(**table);
    end();
  }

 private:
  void set_honest(bool honest) { first_.honest = second_.honest = honest; }

  std::vector<ps::Key> draw_keys() {
    std::vector<ps::Key> keys(1 + input_.u8() % 16);
    for (ps::Key& key : keys) key = input_.u8();
    return keys;
  }

  void act(const ps::RemoteTable& table) {
    switch (input_.below(6)) {
      case 0:
      case 1: {
        const std::vector<ps::Key> keys = draw_keys();
        const size_t values = keys.size() * table.spec.dim;
        ++open_;
        const Status begun = client_->fetch(
            table, keys, {}, [this, values, count = keys.size()](Result<ps::FetchedRows> rows) {
              --open_;
              if (!rows.ok()) return;
              MUST_HOLD(rows->values.size() == values && rows->missing.size() == count);
            });
        if (!begun.ok()) --open_;
        break;
      }
      case 2:
      case 3: {
        const std::vector<ps::Key> keys = draw_keys();
        const std::vector<float> gradients(keys.size() * table.spec.dim, 1.0f);
        ++open_;
        const Status begun =
            client_->push(table, keys, gradients, {}, [this](Result<ps::PushSummary>) { --open_; });
        if (!begun.ok()) --open_;
        break;
      }
      case 4: {
        const auto stats = client_->stats(input_.u8() % kServers);
        if (stats.ok()) static_cast<void>(stats->ByteSizeLong());
        break;
      }
      case 5:
        node_.advance(std::chrono::milliseconds(input_.u16() % 2000));
        break;
    }
  }

  void end() {
    node_.run();
    client_.reset();
    node_.run();
    MUST_HOLD(open_ == 0);
    node_.sockets_.clear();
    MUST_HOLD(node_.pool().stats().live_bytes == 0);
  }

  rpc::FakeNode& node_;
  Input& input_;
  WildServer first_;
  WildServer second_;
  std::unique_ptr<ps::ParameterClient> client_;
  int open_ = 0;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static auto* const node = new rpc::FakeNode();
  Input input(data, size);
  Story(*node, input).tell();
  return 0;
}
