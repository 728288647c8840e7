#include "be/base/cpu_time.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

namespace be {
namespace {

// Reads the clock by system calls too, so that both parts grow.
void burn(Nanoseconds amount) {
  const CpuTime start = this_process_cpu_time();
  while ((this_process_cpu_time() - start).total() < amount) {
  }
}

TEST(CpuTime, OfThisProcessGrowsWithWork) {
  const CpuTime before = this_process_cpu_time();
  burn(20ms);
  const CpuTime spent = this_process_cpu_time() - before;
  EXPECT_GE(spent.total(), 20ms);
  EXPECT_GE(spent.user, 0ns);
  EXPECT_GE(spent.system, 0ns);
}

TEST(CpuTime, OfThisProcessAgreesWhenAskedByItsId) {
  burn(20ms);
  const CpuTime own = this_process_cpu_time();
  const Result<CpuTime> other = process_cpu_time(getpid());
  ASSERT_TRUE(other.ok()) << other.status().to_string();
  EXPECT_GE(other->total(), own.total() - 1ms);
  EXPECT_LE(other->total(), own.total() + 50ms);
  // The split is known to a clock tick only.
  EXPECT_NEAR(static_cast<double>(other->system.count()), static_cast<double>(own.system.count()),
              3e7);
}

TEST(CpuTime, OfAnEndedProcessIsNotFound) {
  const pid_t child = fork();
  if (child == 0) _exit(0);
  ASSERT_GT(child, 0);
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  const Result<CpuTime> gone = process_cpu_time(child);
  ASSERT_FALSE(gone.ok());
  EXPECT_EQ(gone.status().code(), Code::kNotFound) << gone.status().to_string();
}

}  // namespace
}  // namespace be
