#include "be/engine/send_window.h"

#include <gtest/gtest.h>

namespace be {
namespace {

TEST(SendWindow, HoldsExactlyItsLimit) {
  SendWindow window(100);
  EXPECT_TRUE(window.fits(100));
  EXPECT_FALSE(window.fits(101));
  window.post(60);
  EXPECT_TRUE(window.fits(40));
  EXPECT_FALSE(window.fits(41));
}

TEST(SendWindow, OpensAsBytesComplete) {
  SendWindow window(100);
  window.post(100);
  EXPECT_FALSE(window.fits(1));
  window.complete(30);
  EXPECT_TRUE(window.fits(30));
  EXPECT_EQ(window.in_flight(), 70u);
}

TEST(SendWindow, ZeroMeansNoLimit) {
  SendWindow window(0);
  for (int i = 0; i < 8; ++i) window.post(UINT32_MAX);
  EXPECT_TRUE(window.fits(UINT32_MAX));
  EXPECT_EQ(window.in_flight(), 8ull * UINT32_MAX);
}

}  // namespace
}  // namespace be
