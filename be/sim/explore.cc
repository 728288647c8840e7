#include "be/sim/explore.h"

#include <memory>

#include "be/base/log.h"
#include "be/sim/application.h"
#include "be/sim/cluster.h"
#include "be/sim/knobs.h"
#include "be/sim/parameter_work.h"

namespace be::sim {
namespace {

// Without any progress of the work. Longer than any stop, keepalive timeout, handshake and connect
// timeout, all of them in a row.
constexpr Nanoseconds kLivenessBound = 30s;

class LogIsVerdict {
 public:
  explicit LogIsVerdict(Simulation& simulation) {
    set_log_sink([&simulation](LogLevel level, std::string_view line) {
      if (level == LogLevel::kError)
        simulation.violate(fmt::format("logged as an error: {}", line));
    });
  }
  ~LogIsVerdict() { set_log_sink({}); }
};

// In a violation it is not returned from.
void run(Simulation& simulation, const Knobs& knobs) {
  Cluster cluster(simulation, knobs);
  std::unique_ptr<Workload> work;
  if (knobs.work.parameter_server) {
    work = std::make_unique<ParameterWork>(cluster);
  } else {
    work = std::make_unique<Application>(cluster);
  }
  cluster.on_start = [&](Process& process) { work->on_start(process); };
  cluster.on_end = [&](Process& process) { work->on_end(process); };
  cluster.on_resume = [&](Process& process, Nanoseconds length) {
    work->on_resume(process, length);
  };
  cluster.start_all();
  simulation.end_if_violated();
  work->start();
  const auto over = [&] { return cluster.faults_over() && work->done(); };
  uint64_t progress = 0;
  while (!cluster.run_until(over, simulation.now() + kLivenessBound)) {
    if (simulation.trace().progress() == progress) {
      simulation.violate("nothing goes on, for half a minute:" + work->unfinished());
    }
    simulation.end_if_violated();
    progress = simulation.trace().progress();
  }
  work->check();
  simulation.end_if_violated();
  cluster.tear_down();
  simulation.end_if_violated();
}

}  // namespace

Outcome run_seed(uint64_t seed, const std::function<void(const Outcome&)>& violated) {
  Outcome outcome;
  outcome.seed = seed;
  Simulation simulation(seed);
  const Knobs knobs = draw_knobs(Random(seed).fork());
  outcome.knobs = knobs.describe();
  const auto conclude = [&] {
    outcome.violation = simulation.violation();
    outcome.hash = simulation.trace().hash();
    outcome.happenings = simulation.trace().count();
    outcome.virtual_time = simulation.now().time_since_epoch();
    outcome.last = simulation.trace().last();
  };
  simulation.on_violation = [&] {
    conclude();
    violated(outcome);
  };
  const LogIsVerdict verdict(simulation);
  run(simulation, knobs);
  simulation.end_if_violated();
  conclude();
  return outcome;
}

}  // namespace be::sim
