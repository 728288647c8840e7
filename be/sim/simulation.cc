#include "be/sim/simulation.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

namespace be::sim {

void Simulation::at(Time when, Task action) {
  events_.push_back({std::max(when, now_), order_++, std::move(action)});
  std::push_heap(events_.begin(), events_.end(), later);
}

bool Simulation::step() {
  if (events_.empty()) return false;
  std::pop_heap(events_.begin(), events_.end(), later);
  Event event = std::move(events_.back());
  events_.pop_back();
  now_ = event.when;
  event.action();
  return true;
}

bool Simulation::run_until(const std::function<bool()>& done, Time deadline) {
  while (violation_.empty()) {
    if (done()) return true;
    if (events_.empty() || events_.front().when > deadline) {
      now_ = std::max(now_, deadline);
      return done();
    }
    step();
  }
  return false;
}

void Simulation::wait_for(const bool& open, const char* what) {
  const Time end = now_ + kLongestWait;
  while (!open && now_ < end && violation_.empty() && step()) {
  }
  if (!open) {
    violate(std::string(what) + (events_.empty() ? ": no event is left" : ": for ten minutes"));
  }
  end_if_violated();
}

void Simulation::end_if_violated() {
  if (violation_.empty()) return;
  if (on_violation) on_violation();
  std::abort();
}

}  // namespace be::sim
