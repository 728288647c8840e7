#include "be/sim/fabric.h"

namespace be::sim {

Nanoseconds Fabric::flight() {
  return options_.latency + simulation_.random().between(0ns, options_.jitter);
}

}  // namespace be::sim
