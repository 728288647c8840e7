// A child forked by a test: runs a body and ends, by exit() unless told otherwise; the parent
// waits for it. A body that hangs is ended by SIGALRM, so it fails the test instead of stopping it.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <functional>

namespace be {

inline bool in_forked_child = false;

}  // namespace be

// What only the parent's other threads had pointers to is lost in the child: no leak of ours.
extern "C" __attribute__((weak)) int __lsan_is_turned_off() { return be::in_forked_child ? 1 : 0; }

namespace be {

// In a child's body: says what is wrong and ends the child.
#define EXPECT_IN_CHILD(condition)                                                       \
  do {                                                                                   \
    if (!(condition)) {                                                                  \
      std::fprintf(stderr, "%s:%d: in the child: %s\n", __FILE__, __LINE__, #condition); \
      _exit(1);                                                                          \
    }                                                                                    \
  } while (false)

enum class ChildEnds : unsigned char { kByExit, kAtOnce };  // exit(): with static destructors

inline pid_t start_child(const std::function<void()>& body, ChildEnds ends = ChildEnds::kByExit) {
  std::fflush(nullptr);  // else both print what is buffered
  const pid_t pid = fork();
  if (pid != 0) return pid;
  in_forked_child = true;
  alarm(20);
  body();
  if (ends == ChildEnds::kAtOnce) _exit(0);
  std::exit(0);
}

inline void expect_good_end(pid_t pid) {
  int status = 0;
  ASSERT_EQ(waitpid(pid, &status, 0), pid);
  EXPECT_FALSE(WIFSIGNALED(status))
      << "signal " << WTERMSIG(status) << (WTERMSIG(status) == SIGALRM ? ": it hangs" : "");
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "exit code " << WEXITSTATUS(status);
}

inline void run_in_child(const std::function<void()>& body, ChildEnds ends = ChildEnds::kByExit) {
  const pid_t pid = start_child(body, ends);
  ASSERT_GT(pid, 0);
  expect_good_end(pid);
}

}  // namespace be
