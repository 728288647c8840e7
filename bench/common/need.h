// What a benchmark does with a failure: one line that says why, and the end.
#pragma once

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "be/base/status.h"

namespace be::bench {

[[noreturn]] inline void die(const Status& status) {
  std::fprintf(stderr, "%s: %s\n", program_invocation_short_name, status.to_string().c_str());
  std::exit(1);
}

template <typename T>
T need(Result<T> result) {
  if (!result.ok()) die(result.status());
  return std::move(result).value();
}

inline void need(const Status& status) {
  if (!status.ok()) die(status);
}

}  // namespace be::bench
