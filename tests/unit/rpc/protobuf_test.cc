// Protobuf services over a Channel and a Server of one FakeNode.
#include "be/rpc/protobuf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "fake_node.h"
#include "tests/unit/rpc/echo.pb.h"

namespace be::rpc {
namespace {

using be::test::EchoRequest;
using be::test::EchoResponse;
using be::test::EchoService;
using google::protobuf::Closure;
using testing::HasSubstr;

const Address kServerAddress = fake_address(9000);

class PlayedService final : public EchoService {
 public:
  void Echo(google::protobuf::RpcController* controller, const EchoRequest* request,
            EchoResponse* response, Closure* done) override {
    auto* control = static_cast<Controller*>(controller);
    deadline = control->deadline();
    if (request->text() == "fail") {
      control->set_status(error(Code::kNotFound, "nobody said {}", request->text()));
    } else if (request->text() == "fail badly") {
      control->SetFailed("a reason");
    } else if (request->text() != "incomplete") {
      std::string text;
      for (int i = 0; i < request->repeat(); ++i) text += request->text();
      response->set_text(text);
    }
    control->response_attachment = std::move(control->request_attachment);
    done->Run();
  }

  void Hold(google::protobuf::RpcController* controller, const EchoRequest*, EchoResponse* response,
            Closure* done) override {
    held = static_cast<Controller*>(controller);
    response->set_text("held");
    held_done = done;
  }

  Time deadline{};
  Controller* held = nullptr;
  Closure* held_done = nullptr;
};

class ProtobufTest : public testing::Test {
 protected:
  ProtobufTest() {
    EXPECT_TRUE(add_service(*server_, &service_, RunOn::kIoThread).ok());
    EXPECT_TRUE(server_->listen(kServerAddress).ok());
    request_.set_text("hello");
  }
  ~ProtobufTest() override {
    channel_.reset();
    server_.reset();
    node_.run();
    controller_.Reset();
    EXPECT_EQ(node_.pool().stats().live_bytes, 0u);
  }

  FakeNode node_;
  PlayedService service_;
  std::unique_ptr<Server> server_ = Server::create(node_, {}).value();
  std::unique_ptr<Channel> channel_ = Channel::create(node_, kServerAddress, {});
  ProtobufChannel protobuf_channel_{*channel_};
  EchoService::Stub stub_{&protobuf_channel_};
  Controller controller_;
  EchoRequest request_;
  EchoResponse response_;
};

struct Flag final : Closure {
  void Run() override { ++runs; }
  int runs = 0;
};

TEST_F(ProtobufTest, WithoutDoneTheCallWaits) {
  request_.set_repeat(2);
  stub_.Echo(&controller_, &request_, &response_, nullptr);
  EXPECT_FALSE(controller_.Failed()) << controller_.ErrorText();
  EXPECT_EQ(response_.text(), "hellohello");
}

TEST_F(ProtobufTest, WithDoneItReturnsAtOnce) {
  Flag done;
  stub_.Echo(&controller_, &request_, &response_, &done);
  EXPECT_EQ(done.runs, 0);
  node_.run();
  EXPECT_EQ(done.runs, 1);
  EXPECT_EQ(response_.text(), "hello");
}

TEST_F(ProtobufTest, AttachmentsTravelBesideTheMessages) {
  controller_.request_attachment = node_.pool().allocate_buffer(70000).value();
  std::memset(controller_.request_attachment.data(), 0x5a, 70000);
  stub_.Echo(&controller_, &request_, &response_, nullptr);
  ASSERT_FALSE(controller_.Failed()) << controller_.ErrorText();
  ASSERT_EQ(controller_.response_attachment.size(), 70000u);
  EXPECT_EQ(controller_.response_attachment.data()[69999], 0x5a);
}

TEST_F(ProtobufTest, TheTimeoutBecomesTheServicesDeadline) {
  controller_.set_timeout(40ms);
  stub_.Echo(&controller_, &request_, &response_, nullptr);
  EXPECT_EQ(service_.deadline, node_.now() + 40ms);
}

TEST_F(ProtobufTest, AFailedMethodTellsItsStatusAndTheMethod) {
  request_.set_text("fail");
  stub_.Echo(&controller_, &request_, &response_, nullptr);
  EXPECT_EQ(controller_.status().code(), Code::kNotFound);
  EXPECT_EQ(controller_.status().message(), "be.test.EchoService.Echo: nobody said fail");
  controller_.Reset();
  request_.set_text("fail badly");
  stub_.Echo(&controller_, &request_, &response_, nullptr);
  EXPECT_EQ(controller_.status().code(), Code::kInternal);
  EXPECT_THAT(controller_.ErrorText(), HasSubstr("a reason"));
}

TEST_F(ProtobufTest, AControllerCanBeUsedAgainAfterReset) {
  request_.set_text("fail");
  stub_.Echo(&controller_, &request_, &response_, nullptr);
  EXPECT_TRUE(controller_.Failed());
  controller_.Reset();
  EXPECT_FALSE(controller_.Failed());
  request_.set_text("well");
  stub_.Echo(&controller_, &request_, &response_, nullptr);
  EXPECT_FALSE(controller_.Failed());
}

TEST_F(ProtobufTest, AnIncompleteRequestNeverLeaves) {
  request_.Clear();
  Flag done;
  stub_.Echo(&controller_, &request_, &response_, &done);
  EXPECT_EQ(done.runs, 1);
  EXPECT_EQ(controller_.status().code(), Code::kInvalidArgument);
  EXPECT_THAT(controller_.ErrorText(),
              HasSubstr("be.test.EchoRequest lacks required fields: text"));
  EXPECT_EQ(node_.connects_, 0u);
}

TEST_F(ProtobufTest, AnIncompleteResponseBecomesAnError) {
  request_.set_text("incomplete");
  stub_.Echo(&controller_, &request_, &response_, nullptr);
  EXPECT_EQ(controller_.status().code(), Code::kInvalidArgument);
  EXPECT_THAT(controller_.ErrorText(), HasSubstr("be.test.EchoResponse lacks"));
}

TEST_F(ProtobufTest, ARequestThatDoesNotParseIsRefusedByName) {
  Payload nonsense{node_.pool().allocate_buffer(10).value(), {}};
  std::memset(nonsense.body.data(), 0xff, 10);
  const auto answer =
      channel_->call_and_wait(method_id("be.test.EchoService.Echo"), std::move(nonsense), {});
  EXPECT_EQ(answer.status().code(), Code::kInvalidArgument);
  EXPECT_THAT(answer.status().message(), HasSubstr("10 bytes do not parse as be.test.EchoRequest"));
}

TEST_F(ProtobufTest, CancellingReachesTheServicesController) {
  Flag done, noticed;
  stub_.Hold(&controller_, &request_, &response_, &done);
  node_.run();
  ASSERT_NE(service_.held, nullptr);
  service_.held->NotifyOnCancel(&noticed);
  EXPECT_FALSE(service_.held->IsCanceled());
  controller_.StartCancel();
  node_.run();
  EXPECT_EQ(done.runs, 1);
  EXPECT_EQ(controller_.status().code(), Code::kCancelled);
  EXPECT_TRUE(service_.held->IsCanceled());
  EXPECT_EQ(noticed.runs, 1);
  service_.held_done->Run();
  node_.run();
  EXPECT_EQ(noticed.runs, 1);
}

TEST_F(ProtobufTest, WithoutCancellationItsNoticeComesAfterTheAnswer) {
  Flag done, noticed;
  stub_.Hold(&controller_, &request_, &response_, &done);
  node_.run();
  service_.held->NotifyOnCancel(&noticed);
  service_.held_done->Run();
  node_.run();
  EXPECT_EQ(done.runs, 1);
  EXPECT_EQ(response_.text(), "held");
  EXPECT_EQ(noticed.runs, 1);
}

TEST_F(ProtobufTest, AServiceIsRegisteredOnce) {
  auto second = Server::create(node_, {}).value();
  EXPECT_TRUE(add_service(*second, &service_).ok());
  const Status status = add_service(*second, &service_);
  EXPECT_EQ(status.code(), Code::kAlreadyExists);
  EXPECT_THAT(status.message(), HasSubstr("be.test.EchoService.Echo"));
}

}  // namespace
}  // namespace be::rpc
