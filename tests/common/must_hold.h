// What must hold in a fuzz target or a test's own process, in every build: else the condition is
// printed and the process aborts, which libFuzzer takes as a finding.
#pragma once

#include <cstdio>
#include <cstdlib>

#define MUST_HOLD(condition)                                                              \
  do {                                                                                    \
    if (!(condition)) {                                                                   \
      std::fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                                       \
    }                                                                                     \
  } while (false)
