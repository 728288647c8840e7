// An rpc server and clients that send frames cut, bent and out of turn, while handlers answer at
// once, on workers, late, or never.
//
// A request has at most one answer, every answer is well formed; at the end all memory is back.
#include <map>

#include "be/rpc/server.h"
#include "tests/fuzz/common/wild_client.h"

namespace {

using namespace be;
using namespace be::fuzz;

constexpr size_t kMostClients = 3;
const char* const kMethods[] = {"echo", "later", "held", "failed", "unknown"};

class Story {
 public:
  Story(rpc::FakeNode& node, Input& input) : node_(node), input_(input) {}

  void tell() {
    server_ = rpc::Server::create(node_, {.worker_threads = 1, .max_in_progress = 6}).value();
    const auto echo = [](rpc::ServerCall call) {
      call.reply({std::move(call.body()), std::move(call.attachment())});
    };
    add("echo", rpc::RunOn::kIoThread, echo);
    add("later", rpc::RunOn::kWorkers, echo);
    add("held", rpc::RunOn::kIoThread, [this](rpc::ServerCall call) {
      if (input_.flag()) call.on_cancel([this] { ++hooks_; });
      held_.push_back(std::move(call));
    });
    add("failed", rpc::RunOn::kWorkers,
        [](rpc::ServerCall call) { call.fail(Status(Code::kNotFound, "no such thing")); });
    MUST_HOLD(server_->listen(rpc::fake_address(1)).ok());
    connect();
    for (int step = 0; step < 150 && !input_.empty(); ++step) act();
    if (input_.flag()) server_.reset();  // before its clients
    node_.hold_messages_ = false;
    node_.queue_limit_ = SIZE_MAX;
    run();
    held_.clear();
    run();
    for (const auto& client : clients_) MUST_HOLD(client->unanswered() == 0 || lied_);
    for (const auto& client : clients_) client->close();
    run();
    server_.reset();
    run();
    for (const auto& client : clients_) MUST_HOLD(!client->open());
    clients_.clear();
    node_.sockets_.clear();
    MUST_HOLD(node_.pool().stats().live_bytes == 0);
  }

 private:
  void add(const char* name, rpc::RunOn run_on, rpc::Handler handler) {
    MUST_HOLD(server_->add_method(name, run_on, std::move(handler)).ok());
  }
  void run() {
    for (int i = 0; i < 3; ++i) {
      node_.run();
      node_.workers().run();
    }
    node_.run();
  }
  void connect() {
    clients_.push_back(std::make_unique<WildClient>(node_));
    node_.connect(rpc::fake_address(1), {}, clients_.back().get());
    node_.run();
  }

  void act() {
    WildClient& client = *clients_[input_.u8() % clients_.size()];
    switch (input_.below(14)) {
      case 0:
        lied_ = true;
        client.send_bytes(input_.bytes(input_.u8()));
        break;
      case 1:
      case 2:
      case 3: {
        const uint32_t method = rpc::method_id(kMethods[input_.u8() % 5]);
        const auto body = input_.bytes(input_.u8() % 32);
        client.ask(method, body, input_.bytes(input_.u8() % 32), input_.u32());
        break;
      }
      case 4:
      case 5:
        send_bent(client);
        break;
      case 6: {
        rpc::FrameHeader header;
        header.type = rpc::FrameType::kCancel;
        header.call_id = client.last_id() - input_.u8() % 4;
        lied_ = true;  // no answer to a cancel
        client.send_frame(header, {}, {});
        break;
      }
      case 7:
        node_.run();
        break;
      case 8:
        node_.workers().run();
        break;
      case 9:
        node_.advance(std::chrono::microseconds(input_.u32() % 2'000'000));
        break;
      case 10:
        answer_held();
        break;
      case 11:
        if (clients_.size() < kMostClients) connect();
        break;
      case 12:
        client.close();
        break;
      case 13:
        node_.hold_messages_ = input_.flag();
        node_.queue_limit_ = 1 + input_.u8() % 4;
        break;
    }
  }

  void send_bent(WildClient& client) {
    rpc::FrameHeader header;
    header.type = static_cast<rpc::FrameType>(input_.u8() % 5);
    header.method = rpc::method_id(kMethods[input_.u8() % 5]);
    header.call_id = input_.u8();  // two may be the same
    header.timeout_us = input_.u32();
    const auto body = input_.bytes(input_.u8());
    header.body_bytes = static_cast<uint32_t>(body.size());
    const uint8_t bends = input_.u8();
    if ((bends & 1) != 0) header.flags = input_.u8();
    if ((bends & 2) != 0) header.code = input_.u8();
    if ((bends & 4) != 0) header.body_bytes = input_.u32();
    if ((bends & 8) != 0) header.attachment_bytes = input_.u32();
    if ((bends & 16) != 0) {
      header.attachment_bytes = header.body_bytes;
      header.body_bytes = 0;
    }
    lied_ = true;
    client.send_frame(header, body, {});
  }

  void answer_held() {
    if (held_.empty()) return;
    rpc::ServerCall call = std::move(held_.back());
    held_.pop_back();
    if (input_.flag()) call.reply({});
  }

  rpc::FakeNode& node_;
  Input& input_;
  std::unique_ptr<rpc::Server> server_;
  std::vector<rpc::ServerCall> held_;
  std::vector<std::unique_ptr<WildClient>> clients_;
  bool lied_ = false;  // not every frame that looks like a request is answered any more
  int hooks_ = 0;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static auto* const node = new rpc::FakeNode();
  Input input(data, size);
  Story(*node, input).tell();
  return 0;
}
