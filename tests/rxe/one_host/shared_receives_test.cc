// A server whose engines have their receives on one SRQ: calls, ends, and calls again.
#include <gtest/gtest.h>

#include <memory>

#include "tests/rxe/common/echo.h"

namespace be {
namespace {

// 54 that no credit is spent for and 4, for three; and for what is dealt beyond that, of which an
// engine that is ending gives nothing back before its queue pair is gone.
constexpr uint32_t kForThree = 3 * 58 + 3 * 58;

TEST(SharedReceives, ServeEnginesThatComeAndGo) {
  const auto server = rxe::EchoServer::start("127.0.0.1:0", TransportChoice::kRdma, kForThree);
  rxe::EchoClient stays(server->address());
  for (int round = 0; round < 2; ++round) {
    rxe::EchoClient goes(server->address());
    for (const size_t bytes : {32, 4000, 300'000}) {
      goes.expect_echoes(32, bytes);
      stays.expect_echoes(32, bytes);
    }
    EXPECT_EQ(goes.transport(), TransportKind::kHardware);
  }
  stays.expect_echoes(32, 4000);
  EXPECT_EQ(stays.transport(), TransportKind::kHardware);
}

}  // namespace
}  // namespace be
