// The main of all cluster tests: GoogleTest's, or a role that a test of this program has started
// in another process (peer_role.h).
#include <gmock/gmock.h>

#include <string_view>

#include "tests/cluster/common/peer_role.h"

int main(int argc, char** argv) {
  if (argc >= 3 && std::string_view(argv[1]) == be::cluster::kPeerFlag) {
    return be::cluster::play_role(argv[2], {argv + 3, argv + argc});
  }
  testing::InitGoogleMock(&argc, argv);
  return RUN_ALL_TESTS();
}
