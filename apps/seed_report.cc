#include "apps/seed_report.h"

#include <fmt/format.h>

namespace be::apps {

std::string seed_report(const sim::Outcome& outcome) {
  const double seconds = static_cast<double>(outcome.virtual_time.count()) / 1e9;
  std::string text = fmt::format("what seed {} decided:\n{}", outcome.seed, outcome.knobs);
  text += "its last happenings (time, host, what, whose, detail):\n";
  for (const std::string& line : outcome.last) text += "  " + line + "\n";
  text += fmt::format("{} happenings in {:.6f} s of virtual time, trace {:016x}\n",
                      outcome.happenings, seconds, outcome.hash);
  text += fmt::format("seed {}: {}\n", outcome.seed,
                      outcome.violation.empty() ? "clean" : outcome.violation);
  if (!outcome.violation.empty()) {
    text += fmt::format("again: byteexpress sim replay {}\n", outcome.seed);
  }
  return text;
}

}  // namespace be::apps
