// Messages there and back between two nodes of this process, over one device and nothing else.
//
//   client node --- TCP handshake on 127.0.0.1, queue pair ---> server node
//
// What passes has passed through all of the library: registration, connection, SEND, WRITE,
// completions. Takes about a second, at most ten of silence; needs a few MiB of registered memory.
#pragma once

#include <cstdint>
#include <string>

#include "be/base/status.h"
#include "be/transport/node.h"
#include "be/verbs/device.h"

namespace be::apps::doctor {

struct Loopback {
  uint64_t round_trips = 0;  // of 32 B, timed
  double p50_us = 0;
  double p99_us = 0;
  uint64_t bytes = 0;  // of larger messages, each of which came back as it should
};

// `device` is a name of list_hardware_devices, or "softnic". Failure: kDataLoss if bytes have
// changed on the way, else what the library says.
Result<Loopback> run_loopback(DeviceKind kind, const std::string& device,
                              const NodeOptions& settings);

}  // namespace be::apps::doctor
