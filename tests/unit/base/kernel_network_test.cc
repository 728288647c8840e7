// The StreamNetwork of the kernel World, over loopback.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <array>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "be/base/unique_fd.h"
#include "be/base/world.h"

namespace be {
namespace {

using testing::HasSubstr;
using Kind = IoResult::Kind;

class Silent final : public PollHandler {
 public:
  virtual ~Silent() = default;
  void on_ready(bool, bool) override {}
};

iovec part(std::string& text) { return {text.data(), text.size()}; }

size_t open_descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<size_t>(std::distance(begin(all), end(all)));
}

class KernelNetworkTest : public testing::Test {
 protected:
  void SetUp() override {
    descriptors_at_start_ = open_descriptors();
    poller_ = std::move(kernel_world().make_poller()).value();
  }

  void TearDown() override {
    poller_.reset();
    EXPECT_EQ(open_descriptors(), descriptors_at_start_);
  }

  UniqueFd listen_on(const std::string& address) {
    Result<int> fd = net_.listen(Address::parse(address).value());
    EXPECT_TRUE(fd.ok()) << fd.status().to_string();
    return UniqueFd(fd.ok() ? *fd : -1);
  }

  void wait_for(int fd, bool writable) {
    Silent handler;
    ASSERT_TRUE(poller_->add(fd, &handler, writable).ok());
    ASSERT_EQ(poller_->wait(kernel_world().now() + 5s), 1);
    poller_->remove(fd);
  }

  // Two connected ends over a listener on `address`.
  void make_pair(const std::string& address, UniqueFd* client, UniqueFd* server) {
    const UniqueFd listener = listen_on(address);
    const Address bound = net_.local_address(listener.get()).value();
    client->reset(net_.connect(bound).value());
    wait_for(client->get(), true);
    ASSERT_TRUE(net_.connect_result(client->get()).ok());
    server->reset(net_.accept(listener.get()).value());
    ASSERT_TRUE(server->valid());
  }

  StreamNetwork& net_ = kernel_world().network();
  std::unique_ptr<Poller> poller_;
  size_t descriptors_at_start_ = 0;
};

TEST_F(KernelNetworkTest, ResolvesNumbersAndTheLocalHost) {
  EXPECT_EQ(net_.resolve("10.0.0.1:9000").value().to_string(), "10.0.0.1:9000");
  EXPECT_EQ(net_.resolve("[::1]:9000").value().to_string(), "[::1]:9000");
  const Address local = net_.resolve("localhost:9000").value();
  EXPECT_TRUE(local.is_loopback());
  EXPECT_EQ(local.port, 9000);
}

TEST_F(KernelNetworkTest, MalformedHostAndPortIsNamed) {
  for (const char* text :
       {"", "host", ":9000", "host:", "host:99999", "host:http", "a:b:1", "two words:1"}) {
    const Result<Address> address = net_.resolve(text);
    ASSERT_FALSE(address.ok()) << text;
    EXPECT_EQ(address.status().code(), Code::kInvalidArgument);
    EXPECT_THAT(address.status().message(), HasSubstr(std::string("'") + text + "'"));
  }
}

// RFC 6761: names below .invalid never resolve. Without a name server the answer is "try again".
TEST_F(KernelNetworkTest, UnknownHostIsNamed) {
  const Result<Address> address = net_.resolve("nobody.invalid:9000");
  ASSERT_FALSE(address.ok());
  EXPECT_THAT(address.status().message(), HasSubstr("host 'nobody.invalid'"));
}

TEST_F(KernelNetworkTest, PortInUseIsAlreadyExistsAndNamed) {
  const UniqueFd listener = listen_on("127.0.0.1:0");
  const Address bound = net_.local_address(listener.get()).value();
  EXPECT_NE(bound.port, 0);
  const Result<int> second = net_.listen(bound);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().code(), Code::kAlreadyExists);
  EXPECT_THAT(second.status().message(), HasSubstr(bound.to_string()));
}

TEST_F(KernelNetworkTest, AcceptWithNobodyWaitingIsNoError) {
  const UniqueFd listener = listen_on("127.0.0.1:0");
  EXPECT_EQ(net_.accept(listener.get()).value(), -1);
}

TEST_F(KernelNetworkTest, BytesGoBothWaysInGatheredPieces) {
  UniqueFd client;
  UniqueFd server;
  make_pair("127.0.0.1:0", &client, &server);
  EXPECT_EQ(net_.remote_address(client.get()).value(), net_.local_address(server.get()).value());
  EXPECT_EQ(net_.remote_address(server.get()).value(), net_.local_address(client.get()).value());

  std::string head = "head ";
  std::string tail = "and tail";
  const iovec out[] = {part(head), part(tail)};
  const IoResult written = net_.write(client.get(), out, 2);
  EXPECT_EQ(written.kind, Kind::kOk);
  EXPECT_EQ(written.bytes, 13u);

  wait_for(server.get(), false);
  std::string first(3, ' ');
  std::string second(20, ' ');
  const iovec in[] = {part(first), part(second)};
  const IoResult read = net_.read(server.get(), in, 2);
  EXPECT_EQ(read.kind, Kind::kOk);
  EXPECT_EQ(first + second.substr(0, read.bytes - 3), "head and tail");
}

TEST_F(KernelNetworkTest, Ipv6WorksAndADualListenerSeesIpv4PeersMapped) {
  UniqueFd client;
  UniqueFd server;
  make_pair("[::1]:0", &client, &server);
  EXPECT_EQ(net_.remote_address(server.get()).value().to_string().substr(0, 6), "[::1]:");

  const UniqueFd listener = listen_on("[::]:0");
  Address target = Address::parse("127.0.0.1:0").value();
  target.port = net_.local_address(listener.get()).value().port;
  client.reset(net_.connect(target).value());
  wait_for(listener.get(), false);
  server.reset(net_.accept(listener.get()).value());
  EXPECT_EQ(net_.remote_address(server.get()).value(), net_.local_address(client.get()).value());
}

TEST_F(KernelNetworkTest, SocketsAreSetUpAtBothEnds) {
  UniqueFd client;
  UniqueFd server;
  make_pair("127.0.0.1:0", &client, &server);
  for (const int fd : {client.get(), server.get()}) {
    EXPECT_TRUE(fcntl(fd, F_GETFL) & O_NONBLOCK);
    EXPECT_TRUE(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    int no_delay = 0;
    socklen_t size = sizeof(no_delay);
    getsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &no_delay, &size);
    EXPECT_TRUE(no_delay);
  }
}

TEST_F(KernelNetworkTest, ReadOfNothingWouldBlockAndWriteStopsWhenThePeerDoesNotRead) {
  UniqueFd client;
  UniqueFd server;
  make_pair("127.0.0.1:0", &client, &server);
  std::string block(1 << 20, 'x');
  const iovec io = part(block);
  EXPECT_EQ(net_.read(server.get(), &io, 1).kind, Kind::kWouldBlock);
  IoResult result;
  for (int i = 0; i < 100 && result.kind == Kind::kOk; ++i) {
    result = net_.write(client.get(), &io, 1);
  }
  EXPECT_EQ(result.kind, Kind::kWouldBlock);
}

TEST_F(KernelNetworkTest, EndOfOneDirectionLeavesTheOtherOpen) {
  UniqueFd client;
  UniqueFd server;
  make_pair("127.0.0.1:0", &client, &server);
  net_.shutdown_write(client.get());
  wait_for(server.get(), false);
  std::string text = "late";
  const iovec io = part(text);
  EXPECT_EQ(net_.read(server.get(), &io, 1).kind, Kind::kEnd);
  EXPECT_EQ(net_.write(server.get(), &io, 1).kind, Kind::kOk);
  wait_for(client.get(), false);
  EXPECT_EQ(net_.read(client.get(), &io, 1).bytes, 4u);
}

// SIGPIPE would end the test program.
TEST_F(KernelNetworkTest, WriteToAClosedPeerIsAnErrorAndNoSignal) {
  UniqueFd client;
  UniqueFd server;
  make_pair("127.0.0.1:0", &client, &server);
  net_.close(server.release());
  std::string text = "anybody?";
  const iovec io = part(text);
  IoResult result;
  for (int i = 0; i < 3 && result.kind == Kind::kOk; ++i) {
    result = net_.write(client.get(), &io, 1);
    if (result.kind == Kind::kOk) wait_for(client.get(), false);  // the peer's reset
  }
  EXPECT_EQ(result.kind, Kind::kError);
  EXPECT_TRUE(result.error_number == EPIPE || result.error_number == ECONNRESET);
}

TEST_F(KernelNetworkTest, RefusedConnectIsReportedByItsResult) {
  UniqueFd listener = listen_on("127.0.0.1:0");
  const Address nobody = net_.local_address(listener.get()).value();
  listener.reset();
  const UniqueFd client(net_.connect(nobody).value());
  wait_for(client.get(), true);
  const Status status = net_.connect_result(client.get());
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_THAT(status.message(), HasSubstr("ECONNREFUSED"));
}

// Binding first makes certain what otherwise happens by chance to one connect in thousands.
TEST_F(KernelNetworkTest, ConnectionOfASocketToItselfIsRefused) {
  UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in self{};
  self.sin_family = AF_INET;
  self.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(self);
  auto* name = reinterpret_cast<sockaddr*>(&self);
  ASSERT_EQ(bind(fd.get(), name, size), 0);
  ASSERT_EQ(getsockname(fd.get(), name, &size), 0);
  ASSERT_EQ(connect(fd.get(), name, size), 0);
  EXPECT_THAT(net_.connect_result(fd.get()).message(), HasSubstr("ECONNREFUSED"));
}

TEST_F(KernelNetworkTest, WithoutDescriptorsAWaitingConnectionIsTurnedAway) {
  const UniqueFd listener = listen_on("127.0.0.1:0");
  const UniqueFd client(net_.connect(net_.local_address(listener.get()).value()).value());
  wait_for(listener.get(), false);

  std::vector<UniqueFd> hoard;
  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  rlimit low = before;
  low.rlim_cur = static_cast<rlim_t>(listener.get()) + 32;
  setrlimit(RLIMIT_NOFILE, &low);
  for (int fd = dup(0); fd >= 0; fd = dup(0)) hoard.emplace_back(fd);
  const Result<int> accepted = net_.accept(listener.get());
  const Result<int> next = net_.accept(listener.get());
  hoard.clear();
  setrlimit(RLIMIT_NOFILE, &before);

  ASSERT_FALSE(accepted.ok());
  EXPECT_EQ(accepted.status().code(), Code::kResourceExhausted);
  std::string text(1, ' ');
  const iovec io = part(text);
  wait_for(client.get(), false);
  EXPECT_NE(net_.read(client.get(), &io, 1).kind, Kind::kWouldBlock);  // closed, not left waiting
  EXPECT_TRUE(!next.ok() || *next == -1);
  EXPECT_EQ(net_.accept(listener.get()).value(), -1);
}

}  // namespace
}  // namespace be
