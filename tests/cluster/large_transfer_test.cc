// 256 MB to a process over softnic with default options but one, while 100 B calls to it go on.
//
//   P99 of the calls <= 2 ms        a call stands behind one fragment of 64 KiB (some 20 us to
//   copy);
//                                   the rest is for a machine that others use
//
// A fragment as large as the message breaks that by far: one copy holds both threads for all its
// time.
#include "tests/common/large_transfer.h"

namespace be::cluster {
namespace {

constexpr size_t kBytes = size_t{256} << 20;
constexpr Nanoseconds kBound = 2ms;

NodeOptions options() {
  NodeOptions made;
  made.transport = TransportChoice::kSoftnic;
  made.memory.cap_bytes = size_t{640} << 20;
  // The server's thread makes the memory of the first transfer: 2 to 5 s on a machine that is busy.
  made.engine.keepalive_timeout = 60s;
  return made;
}

TEST_F(LargeTransfer, SmallCallsHaveABoundBeside256Megabytes) {
  const Figures figures = transfer(options(), kBytes);
  EXPECT_GE(figures.calls, 100u);
  EXPECT_LE(figures.p99, kBound);
}

TEST_F(LargeTransfer, WithoutFragmentsTheyHaveNot) {
  NodeOptions whole = options();
  whole.engine.fragment_bytes = kBytes;
  EXPECT_GT(transfer(whole, kBytes).raw_p99, kBound);
}

}  // namespace
}  // namespace be::cluster
