// Pacer: lets the process that started us say when the next stretch of work begins (--paced).
//
// demo runs a cluster over softnic and one over TCP side by side and lets them work in turns, so
// that both meet the same machine. Waiting drives the node (keepalive goes on) and uses no CPU.
// One line on standard input is one go; its end means that nobody is left to work for.
#pragma once

#include "apps/reporter.h"
#include "be/transport/node.h"

namespace be::apps {

class Pacer final : private PollHandler {
 public:
  // `node` is driven by this thread. Not paced: wait_for_go() returns at once.
  static Result<std::unique_ptr<Pacer>> create(Node& node, bool paced);
  virtual ~Pacer();

  // kClosed when standard input has ended.
  Status wait_for_go(const Reporter& reporter);

 private:
  Pacer(Node& node, bool paced) : node_(node), paced_(paced) {}
  void on_ready(bool readable, bool writable) override;

  Node& node_;
  const bool paced_;
  int goes_ = 0;
  bool ended_ = false;
};

}  // namespace be::apps
