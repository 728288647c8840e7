// What is printed of a failed or replayed seed.
#pragma once

#include <string>

#include "be/sim/explore.h"

namespace be::apps {

// Verdict, what the seed decided, the last happenings, and the command that runs it again.
std::string seed_report(const sim::Outcome& outcome);

}  // namespace be::apps
