// The node of a benchmark's process over the transport that its command line names.
#pragma once

#include <memory>
#include <string>

#include "be/transport/node.h"
#include "bench/common/need.h"

namespace be::bench {

// `transport`: "tcp" or "softnic".
inline std::unique_ptr<Node> make_node(const std::string& transport, bool driven, bool polling) {
  NodeOptions options;
  options.transport = transport == "tcp" ? TransportChoice::kTcp : TransportChoice::kSoftnic;
  options.driven = driven;
  options.spin_forever = polling;
  return need(Node::create(kernel_world(), options));
}

}  // namespace be::bench
