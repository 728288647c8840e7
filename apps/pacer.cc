#include "apps/pacer.h"

#include <unistd.h>

#include <algorithm>

namespace be::apps {

Result<std::unique_ptr<Pacer>> Pacer::create(Node& node, bool paced) {
  std::unique_ptr<Pacer> pacer(new Pacer(node, paced));
  if (paced) {
    BE_RETURN_IF_ERROR(node.thread(0)
                           .poller()
                           .add(STDIN_FILENO, pacer.get())
                           .with_context("--paced: standard input"));
  }
  return pacer;
}

Pacer::~Pacer() {
  if (paced_) node_.thread(0).poller().remove(STDIN_FILENO);
}

void Pacer::on_ready(bool, bool) {
  char text[256];
  const ssize_t got = ::read(STDIN_FILENO, text, sizeof(text));
  if (got > 0) {
    goes_ += static_cast<int>(std::count(text, text + got, '\n'));
    return;
  }
  ended_ = true;
  node_.thread(0).poller().remove(STDIN_FILENO);
}

Status Pacer::wait_for_go(const Reporter& reporter) {
  if (!paced_) return ok_status();
  reporter.event("waiting", {});
  node_.thread(0).run_until([this] { return goes_ > 0 || ended_; }, kNever);
  if (goes_ == 0) return Status(Code::kClosed, "--paced: standard input has ended");
  --goes_;
  return ok_status();
}

}  // namespace be::apps
