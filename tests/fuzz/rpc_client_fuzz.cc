// A Channel, raw and protobuf calls on it, and a server that answers what it likes: frames cut and
// bent, answers to nothing, twice, or never, and protobuf bytes that are none.
//
// Every call ends exactly once; at the end all memory is back.
#include "be/ps/parameter_service.pb.h"
#include "be/rpc/channel.h"
#include "be/rpc/frame.h"
#include "be/rpc/protobuf.h"
#include "tests/common/must_hold.h"
#include "tests/fuzz/common/input.h"
#include "tests/unit/rpc/fake_node.h"

namespace {

using namespace be;
using namespace be::fuzz;

// Its ends of the channel's sockets, and the calls it has heard of.
class WildServer final : public SocketHandler {
 public:
  explicit WildServer(rpc::FakeNode& node) : node_(node) {}

  void on_open(Socket&) override {}
  void on_message(Socket& socket, Buffer message) override {
    rpc::FrameHeader header;
    MUST_HOLD(rpc::parse_frame(message, header).ok());
    MUST_HOLD(header.type != rpc::FrameType::kResponse);
    if (header.type == rpc::FrameType::kRequest) calls.push_back(header.call_id);
    last_ = &socket;
  }
  void on_sent(Socket&, uint64_t, const Status&) override {}
  void on_closed(Socket& socket, const Status&) override {
    if (last_ == &socket) last_ = nullptr;
    std::erase(sockets, &socket);
  }

  void send(std::span<const uint8_t> bytes) {
    if (last_ == nullptr || bytes.empty()) return;
    Buffer buffer = node_.pool().allocate_buffer(bytes.size()).value();
    std::memcpy(buffer.data(), bytes.data(), bytes.size());
    Message message(std::move(buffer));
    last_->send(message, 0).ignore();
  }
  void close() {
    if (last_ != nullptr) last_->close();
  }

  std::vector<uint64_t> calls;
  std::vector<Socket*> sockets;

 private:
  rpc::FakeNode& node_;
  Socket* last_ = nullptr;  // that said something
};

// A protobuf call that is under way; it ends itself.
struct ProtobufCall final : google::protobuf::Closure {
  explicit ProtobufCall(int& count) : open(count) { ++open; }
  void Run() override {
    if (!controller.Failed()) {
      MUST_HOLD(response.IsInitialized());
      static_cast<void>(response.ByteSizeLong());
    }
    --open;
    delete this;
  }
  int& open;
  rpc::Controller controller;
  ps::DescribeTableRequest request;
  ps::StatsResponse response;
};

class Story {
 public:
  Story(rpc::FakeNode& node, Input& input) : node_(node), input_(input), server_(node) {}

  void tell() {
    const auto listener = node_
                              .listen(rpc::fake_address(1),
                                      [this](Socket& socket) {
                                        if (refuse_) return static_cast<SocketHandler*>(nullptr);
                                        server_.sockets.push_back(&socket);
                                        return static_cast<SocketHandler*>(&server_);
                                      })
                              .value();
    rpc::ChannelOptions options;
    options.bulk_bytes = 64;
    options.max_outstanding = 6;
    channel_ = rpc::Channel::create(node_, rpc::fake_address(1), options);
    for (int step = 0; step < 150 && !input_.empty(); ++step) act();
    channel_.reset();
    node_.hold_connects_ = node_.hold_messages_ = false;
    node_.run();
    MUST_HOLD(open_ == 0);
    MUST_HOLD(server_.sockets.empty());
    node_.sockets_.clear();
    MUST_HOLD(node_.pool().stats().live_bytes == 0);
  }

 private:
  void act() {
    switch (input_.below(14)) {
      case 0:
      case 1:
        call();
        break;
      case 2: {
        auto* made = new ProtobufCall(open_);
        rpc::ProtobufChannel protobuf(*channel_);
        const auto* method = ps::ParameterService::descriptor()->FindMethodByName("Stats");
        protobuf.CallMethod(method, &made->controller, &made->request, &made->response, made);
        break;
      }
      case 3:
        channel_->cancel(last_id_);
        break;
      case 4:
      case 5:
      case 6:
        answer();
        break;
      case 7:
        server_.send(input_.bytes(input_.u8()));
        break;
      case 8:
      case 9:
        node_.run();
        break;
      case 10:
        node_.advance(std::chrono::microseconds(input_.u32() % 3'000'000));
        break;
      case 11:
        server_.close();
        break;
      case 12:
        node_.hold_messages_ = input_.flag();
        node_.hold_connects_ = input_.flag();
        break;
      case 13:
        refuse_ = input_.u8() == 5;
        break;
    }
  }

  void call() {
    rpc::Payload payload;
    if (const size_t bytes = input_.u8(); bytes > 0) {
      payload.body = node_.pool().allocate_buffer(bytes).value();
      std::memset(payload.body.data(), 1, bytes);
    }
    ++open_;
    last_id_ = channel_->call(input_.u8(), std::move(payload),
                              {.timeout = std::chrono::microseconds(1 + input_.u32() % 1'000'000)},
                              [this, ended = false](Result<rpc::Payload> answer) mutable {
                                MUST_HOLD(!ended);
                                ended = true;
                                --open_;
                                if (answer.ok()) {
                                  for (const uint8_t byte : answer->body.bytes()) sum_ += byte;
                                  for (const uint8_t byte : answer->attachment.bytes())
                                    sum_ += byte;
                                } else {
                                  MUST_HOLD(!answer.status().message().empty() || answered_);
                                }
                              });
  }

  void answer() {
    answered_ = true;
    rpc::FrameHeader header;
    header.type = rpc::FrameType::kResponse;
    header.call_id = input_.u64();
    if (!server_.calls.empty() && input_.u8() < 220) {
      header.call_id = server_.calls[input_.u8() % server_.calls.size()];
    }
    std::vector<uint8_t> content = input_.copy(input_.u8() % 64);
    header.body_bytes = static_cast<uint32_t>(content.size());
    const uint8_t bends = input_.u8();
    if ((bends & 1) != 0) header.code = input_.u8() % 24;
    if ((bends & 2) != 0) header.body_bytes = header.body_bytes / 2;
    if ((bends & 6) == 2) {
      header.attachment_bytes = static_cast<uint32_t>(content.size()) - header.body_bytes;
    }
    if ((bends & 8) != 0) header.type = static_cast<rpc::FrameType>(input_.u8());
    if ((bends & 16) != 0) header.timeout_us = input_.u32();
    std::vector<uint8_t> bytes(sizeof(header));
    std::memcpy(bytes.data(), &header, sizeof(header));
    bytes.insert(bytes.end(), content.begin(), content.end());
    server_.send(bytes);
  }

  rpc::FakeNode& node_;
  Input& input_;
  WildServer server_;
  std::unique_ptr<rpc::Channel> channel_;
  rpc::CallId last_id_ = 0;
  int open_ = 0;
  uint64_t sum_ = 0;
  bool refuse_ = false;
  bool answered_ = false;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static auto* const node = new rpc::FakeNode();
  Input input(data, size);
  Story(*node, input).tell();
  return 0;
}
