#include "be/memory/size_classes.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace be::memory {
namespace {

TEST(SizeClasses, EverySizeGetsTheSmallestClassThatHoldsIt) {
  for (size_t size = 1; size <= kMaxSmallBytes; ++size) {
    const size_t index = size_class_of(size);
    ASSERT_GE(kSizeClasses[index].bytes, size);
    if (index > 0) {
      ASSERT_LT(kSizeClasses[index - 1].bytes, size);
    }
  }
}

TEST(SizeClasses, RoundingLosesAtMostAQuarterOrACacheLine) {
  for (size_t size = 1; size <= kMaxSmallBytes; ++size) {
    const size_t lost = kSizeClasses[size_class_of(size)].bytes - size;
    ASSERT_LE(lost, std::max<size_t>(63, size / 4)) << size;
  }
}

TEST(SizeClasses, ObjectsFromACacheLineOnAreAlignedToCacheLines) {
  for (const SizeClass& klass : kSizeClasses) {
    EXPECT_EQ(klass.bytes % (klass.bytes >= 64 ? 64 : 16), 0u) << klass.bytes;
  }
}

TEST(SizeClasses, SpansFitTheSmallestBlockAndTheTables) {
  for (const SizeClass& klass : kSizeClasses) {
    EXPECT_LE(klass.span_pages * 4096u, 65536u);
    EXPECT_LE(klass.span_objects * klass.bytes, klass.span_pages * 4096u);
    EXPECT_LE(klass.span_objects, kMaxSpanObjects);
    EXPECT_GE(klass.span_objects, 4u);
    EXPECT_LE(klass.cached, kMaxCachedObjects);
    EXPECT_GE(klass.cached, 8u);
  }
}

}  // namespace
}  // namespace be::memory
