#include "apps/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace be::apps {

Progress::Progress() : terminal_(::isatty(STDERR_FILENO) == 1) {}

void Progress::show(double fraction, const std::string& text) {
  constexpr int kWidth = 24;
  if (!terminal_) return;
  const double part = std::clamp(fraction, 0.0, 1.0);
  const auto done = static_cast<size_t>(part * kWidth);
  const std::string bar = std::string(done, '#') + std::string(kWidth - done, '-');
  std::fprintf(stderr, "\r\033[K[%s] %3.0f %%  %s", bar.c_str(), part * 100, text.c_str());
  std::fflush(stderr);
  shown_ = true;
}

void Progress::note(const std::string& text) {
  clear();
  std::fprintf(stderr, "%s\n", text.c_str());
}

void Progress::clear() {
  if (!shown_) return;
  std::fputs("\r\033[K", stderr);
  std::fflush(stderr);
  shown_ = false;
}

}  // namespace be::apps
