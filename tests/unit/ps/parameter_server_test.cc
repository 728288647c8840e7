// What a server answers to frames that no ParameterClient would send.
#include "be/ps/parameter_server.h"

#include <limits>

#include "tests/unit/ps/server_fixture.h"

namespace be::ps {
namespace {

using testing::HasSubstr;

class ParameterServerTest : public ServerTest {
 protected:
  void start_one_of_two() {
    servers_.push_back(start_server({.server_index = 0, .server_count = 2, .max_tables = 1},
                                    Address::parse("127.0.0.1:0").value()));
    client_node_ = Node::create(kernel_world(), driven_node()).value();
    channel_ = rpc::Channel::create(*client_node_, servers_[0].server->address(), {});
    EXPECT_TRUE(create_table(sgd_table(2)).ok());
  }

  Status create_table(const TableSpec& spec) {
    CreateTableRequest request;
    TableProperties& table = *request.mutable_table();
    table.set_model(spec.model);
    table.set_name(spec.name);
    table.set_dim(spec.dim);
    table.set_optimizer(static_cast<uint32_t>(spec.optimizer.kind));
    table.set_learning_rate(spec.optimizer.learning_rate);
    const std::string text = request.SerializeAsString();
    return call("be.ps.ParameterService.CreateTable", {text.begin(), text.end()});
  }

  Status call(const char* method, const std::vector<uint8_t>& body) {
    Buffer buffer;
    if (!body.empty()) {
      buffer = client_node_->pool().allocate_buffer(body.size()).value();
      std::copy(body.begin(), body.end(), buffer.data());
    }
    return channel_->call_and_wait(rpc::method_id(method), {std::move(buffer), {}}, {}).status();
  }

  static Key key_of(uint32_t server) {
    const View view = View::uniform(1, 2).value();
    Key key = 0;
    while (view.owner_of(key) != server) ++key;
    return key;
  }

  static std::vector<uint8_t> fetch(TableId table, uint32_t view_version, Key key) {
    std::vector<uint8_t> frame(fetch_request_layout(1).bytes);
    begin_fetch_request(frame, table, view_version, 1);
    std::memcpy(frame.data() + fetch_request_layout(1).keys, &key, sizeof(key));
    return frame;
  }

  static std::vector<uint8_t> push(TableId table, Key key, const std::vector<float>& gradient) {
    const auto dim = static_cast<uint32_t>(gradient.size());
    const RowsLayout layout = push_request_layout(1, dim);
    std::vector<uint8_t> frame(layout.bytes);
    begin_push_request(frame, table, 1, 1, dim);
    std::memcpy(frame.data() + layout.keys, &key, sizeof(key));
    std::memcpy(frame.data() + layout.values, gradient.data(), dim * sizeof(float));
    return frame;
  }

  const TableId id_ = sgd_table(2).id();
  std::unique_ptr<rpc::Channel> channel_;
};

TEST_F(ParameterServerTest, AnswersTheKeysItOwnsAndRefusesOthersByName) {
  start_one_of_two();
  EXPECT_TRUE(call(kFetchMethod, fetch(id_, 1, key_of(0))).ok());
  const Status status = call(kFetchMethod, fetch(id_, 1, key_of(1)));
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("belongs to server 1, not to server 0 of 2"));
}

TEST_F(ParameterServerTest, RefusesAnotherView) {
  start_one_of_two();
  EXPECT_THAT(call(kFetchMethod, fetch(id_, 2, key_of(0))).message(),
              HasSubstr("view 2 is not this server's, which is 1"));
}

TEST_F(ParameterServerTest, RefusesUnknownTables) {
  start_one_of_two();
  EXPECT_EQ(call(kFetchMethod, fetch(id_ + 1, 1, key_of(0))).code(), Code::kNotFound);
  EXPECT_EQ(call(kPushMethod, push(id_ + 1, key_of(0), {1, 2})).code(), Code::kNotFound);
}

TEST_F(ParameterServerTest, RefusesGradientsOfAnotherDimensionOrThatAreNotNumbers) {
  start_one_of_two();
  EXPECT_TRUE(call(kPushMethod, push(id_, key_of(0), {1, 2})).ok());
  EXPECT_THAT(call(kPushMethod, push(id_, key_of(0), {1, 2, 3})).message(),
              HasSubstr("gradients of dim 3 for table 'model/table' of dim 2"));
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(call(kPushMethod, push(id_, key_of(0), {1, nan})).message(),
              HasSubstr("is nan at 1"));
}

TEST_F(ParameterServerTest, RefusesTruncatedFramesAndGoesOn) {
  start_one_of_two();
  auto frame = fetch(id_, 1, key_of(0));
  frame.pop_back();
  EXPECT_EQ(call(kFetchMethod, frame).code(), Code::kProtocol);
  EXPECT_EQ(call(kFetchMethod, {}).code(), Code::kProtocol);
  EXPECT_EQ(call(kPushMethod, {1, 2, 3}).code(), Code::kProtocol);
  EXPECT_TRUE(call(kFetchMethod, fetch(id_, 1, key_of(0))).ok());
}

TEST_F(ParameterServerTest, RefusesImpossibleTablesAndMoreThanItsMaximum) {
  start_one_of_two();
  EXPECT_THAT(create_table({"m", "t", 0, {}, 0, 0}).message(), HasSubstr("dim 0"));
  EXPECT_THAT(create_table({"m", "a/b", 1, {}, 0, 0}).message(), HasSubstr("'a/b'"));
  const Status status = create_table({"m", "second", 1, {}, 0, 0});
  EXPECT_EQ(status.code(), Code::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("'m/second'"));
}

TEST_F(ParameterServerTest, ImpossibleOptionsAreNamed) {
  const auto node = Node::create(kernel_world(), tcp_node()).value();
  EXPECT_THAT(
      ParameterServer::create(*node, {.server_index = 2, .server_count = 2}).status().message(),
      HasSubstr("server index 2 of 2"));
  EXPECT_THAT(ParameterServer::create(*node, {.server_count = 65}).status().message(),
              HasSubstr("65 servers"));
  EXPECT_THAT(ParameterServer::create(*node, {.push_threads = 0}).status().message(),
              HasSubstr("push_threads 0"));
}

}  // namespace
}  // namespace be::ps
