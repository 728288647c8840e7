#include "be/sim/network.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <string>

#include "be/sim/host.h"

namespace be::sim {
namespace {

class VirtualStreams : public testing::Test {
 protected:
  void connect() {
    listener = server.network().listen(server.address(80)).value();
    client_fd = client.network().connect(server.address(80)).value();
    run(1ms);
    ASSERT_TRUE(client.network().connect_result(client_fd).ok());
    server_fd = server.network().accept(listener).value();
    ASSERT_GE(server_fd, 0);
  }
  void TearDown() override {
    for (const int fd : {listener, server_fd}) server.network().close(fd);
    client.network().close(client_fd);
    run(5s);
  }
  void run(Nanoseconds time) {
    simulation.run_until([] { return false; }, simulation.now() + time);
  }
  static IoResult write(Host& host, int fd, const std::string& text) {
    std::string copy = text;
    const iovec iov = {copy.data(), copy.size()};
    return host.network().write(fd, &iov, 1);
  }
  static IoResult read(Host& host, int fd, std::string& text) {
    char bytes[1000];
    const iovec iov = {bytes, sizeof(bytes)};
    const IoResult result = host.network().read(fd, &iov, 1);
    text.append(bytes, result.bytes);
    return result;
  }

  Simulation simulation{5};
  Internet internet;
  Host client{simulation, internet, 0, {}};
  Host server{simulation, internet, 1, {}};
  int listener = -1;
  int server_fd = -1;
  int client_fd = -1;
};

TEST_F(VirtualStreams, BytesArriveInOrderWhateverTheReadsAndWritesMove) {
  connect();
  std::string sent;
  std::string received;
  for (int i = 0; i < 2000; ++i) {
    const std::string piece = std::to_string(i) + ",";
    const IoResult written = write(client, client_fd, piece);
    ASSERT_EQ(written.kind, IoResult::Kind::kOk);
    sent += piece.substr(0, written.bytes);
    run(1us);
    read(server, server_fd, received);
  }
  run(1ms);
  while (read(server, server_fd, received).kind == IoResult::Kind::kOk) {
  }
  EXPECT_EQ(received, sent);
}

TEST_F(VirtualStreams, FullBufferBlocksTheWriterUntilTheReaderReads) {
  connect();
  const std::string block(8192, 'x');
  while (write(client, client_fd, block).kind == IoResult::Kind::kOk) {
  }
  EXPECT_EQ(write(client, client_fd, block).kind, IoResult::Kind::kWouldBlock);
  EXPECT_FALSE(client.find(client_fd)->writable());
  run(1ms);
  std::string text;
  EXPECT_EQ(read(server, server_fd, text).kind, IoResult::Kind::kOk);
  EXPECT_TRUE(client.find(client_fd)->writable());
}

TEST_F(VirtualStreams, NobodyListeningRefuses) {
  client_fd = client.network().connect(server.address(81)).value();
  run(1ms);
  EXPECT_EQ(client.network().connect_result(client_fd).code(), Code::kUnavailable);
}

TEST_F(VirtualStreams, CloseEndsThePeersReading) {
  connect();
  for (std::string rest = "bye"; !rest.empty();) {
    rest.erase(0, write(client, client_fd, rest).bytes);
  }
  client.network().close(client_fd);
  run(1ms);
  std::string text;
  while (read(server, server_fd, text).kind == IoResult::Kind::kOk) {
  }
  EXPECT_EQ(text, "bye");
  EXPECT_EQ(read(server, server_fd, text).kind, IoResult::Kind::kEnd);
}

TEST_F(VirtualStreams, KilledProcessResetsThePeerIfItHadNotReadAll) {
  connect();
  write(client, client_fd, "unread");
  run(1ms);
  server.kill();
  run(1ms);
  std::string text;
  const IoResult result = read(client, client_fd, text);
  EXPECT_EQ(result.kind, IoResult::Kind::kError);
  EXPECT_EQ(result.error_number, ECONNRESET);
  server.wall();
}

}  // namespace
}  // namespace be::sim
