// What every part of one Node's transport may rely on. Outlives them all.
#pragma once

#include <vector>

#include "be/base/world.h"
#include "be/memory/registered_pool.h"
#include "be/transport/device_port.h"
#include "be/transport/node.h"

namespace be {

struct TransportContext {
  World& world;
  RegisteredPool& pool;
  const NodeOptions& options;
  std::vector<NodeDevice> devices;  // that engines may be made on; the preferred one first
};

}  // namespace be
