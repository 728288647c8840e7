#include "apps/reporter.h"

#include <cstdio>

namespace be::apps {

void Reporter::event(const char* kind, nlohmann::json fields) const {
  if (!events_) return;
  fields["event"] = kind;
  std::printf("%s\n", fields.dump().c_str());
  std::fflush(stdout);
}

void Reporter::line(const std::string& text) const {
  if (events_) return;
  std::printf("%s\n", text.c_str());
  std::fflush(stdout);
}

}  // namespace be::apps
