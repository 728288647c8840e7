// Failpoints themselves (be/base/failpoint.h), each time in a process of its own.
#include "be/base/failpoint.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <set>

namespace be::failpoint {
namespace {

TEST(Failpoint, EveryNameIsInTheListOnce) {
  const std::set<std::string_view> names(std::begin(kNames), std::end(kNames));
  EXPECT_EQ(names.size(), kCount);
  EXPECT_EQ(index_of("softnic.post"), kCount);
}

#ifdef BE_FAILPOINTS

constexpr std::string_view kName = "softnic.post.published";

void pass() { BE_FAILPOINT("softnic.post.published"); }
void pass_another() { BE_FAILPOINT("softnic.post.marked"); }

pid_t fork_and(void (*body)()) {
  const pid_t pid = fork();
  if (pid == 0) {
    body();
    _exit(0);
  }
  return pid;
}

TEST(Failpoint, KillsAtThePassingThatWasAskedFor) {
  const pid_t child = fork_and([] {
    arm(kName, 3, Action::kKill);
    pass();
    pass_another();
    pass();
    if (!armed()) _exit(1);
    pass();
  });
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

TEST(Failpoint, StopsOnceAndGoesOnWhenContinued) {
  const pid_t child = fork_and([] {
    arm(kName, 1, Action::kStop);
    pass();
    pass();
    if (armed()) _exit(1);
  });
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, WUNTRACED), child);
  ASSERT_TRUE(WIFSTOPPED(status));
  kill(child, SIGCONT);
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

TEST(Failpoint, NothingHappensWhereNoneIsArmed) {
  arm(kName, 1, Action::kKill);
  disarm();
  pass();
  EXPECT_FALSE(armed());
}

TEST(Failpoint, ACopyHasAMiddleUnlessItIsTiny) {
  EXPECT_EQ(before_middle(4096), 2048u);
  EXPECT_EQ(before_middle(8), 8u);
}

#else

TEST(Failpoint, IsNothingInAReleaseBuild) {
  BE_FAILPOINT("softnic.post.published");
  EXPECT_EQ(before_middle(4096), 4096u);
}

#endif

}  // namespace
}  // namespace be::failpoint
