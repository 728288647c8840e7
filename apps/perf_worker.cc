#include "apps/perf_worker.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "apps/device_label.h"

namespace be::apps {
namespace {

constexpr Nanoseconds kPatience = 30s;  // for an answer of the server
constexpr Nanoseconds kSlice = 50ms;    // between two looks for signals
constexpr uint32_t kBackgroundOutstanding = 2;

}  // namespace

// The control socket.
class PerfControl final : public SocketHandler {
 public:
  PerfControl(Node& node, const PerfGreeting& greeting) : node_(node), greeting_(greeting) {}
  virtual ~PerfControl() = default;

  void on_open(Socket& socket) override {
    socket_ = &socket;
    transport = socket.transport();
    device = device_label(socket.transport(), socket.device_name());
    fail(send_frame(node_.pool(), socket, encode_greeting(greeting_)));
  }
  void on_message(Socket&, Buffer message) override {
    if (!ready) {
      const Status welcome = decode_welcome(message.bytes());
      ready = welcome.ok();
      return fail(welcome);
    }
    Result<PerfReport> decoded = decode_report(message.bytes());
    if (!decoded.ok()) return fail(decoded.status());
    report = *std::move(decoded);
    asked = false;
  }
  void on_sent(Socket&, uint64_t, const Status&) override {}
  void on_closed(Socket& socket, const Status& status) override {
    const bool at_greeting = socket_ != nullptr && !ready && status.code() == Code::kClosed;
    socket_ = nullptr;
    fail(at_greeting ? error(Code::kProtocol,
                             "{} closed the socket at our greeting: is it `byteexpress perf "
                             "server`?",
                             socket.remote().to_string())
                     : status);
  }
  Status ask() {
    asked = true;
    return send_frame(node_.pool(), *socket_, encode_report_request());
  }
  void fail(const Status& why) {
    if (failure.ok()) failure = why;
  }

  bool ready = false;
  bool asked = false;
  PerfReport report;
  Status failure;
  TransportKind transport = TransportKind::kTcp;
  std::string device;

 private:
  Node& node_;
  const PerfGreeting greeting_;
  Socket* socket_ = nullptr;
};

Result<std::unique_ptr<PerfWorker>> PerfWorker::create(const NodeOptions& options, size_t index,
                                                       const PerfPlan& plan, EndSignals& signals) {
  NodeOptions own = options;
  own.driven = true;
  own.io_threads = 1;
  std::unique_ptr<PerfWorker> worker(new PerfWorker(plan, signals));
  BE_ASSIGN_OR_RETURN(worker->node_, Node::create(kernel_world(), own));
  BE_ASSIGN_OR_RETURN(worker->thread_,
                      kernel_world().executor().start_workers(fmt::format("perf-{}", index), 1));
  return worker;
}

PerfWorker::PerfWorker(const PerfPlan& plan, EndSignals& signals)
    : plan_(plan), signals_(signals) {}

PerfWorker::~PerfWorker() {
  thread_.reset();
  node_.reset();
}

TransportKind PerfWorker::transport() const { return control_->transport; }
std::string PerfWorker::device() const { return control_->device; }

bool PerfWorker::drive(const std::function<bool()>& done, Nanoseconds patience,
                       Interruptible interruptible) {
  const Time end = kernel_world().now() + patience;
  IoThread& thread = node_->thread(0);
  for (;;) {
    const Time now = kernel_world().now();
    if (now >= end || (interruptible == Interruptible::kYes && signals_.arrived())) return false;
    if (thread.run_until(done, std::min(end, now + kSlice))) return true;
  }
}

Status PerfWorker::first_failure() const {
  if (control_ != nullptr && !control_->failure.ok()) return control_->failure;
  for (const auto* flows : {&flows_, &background_}) {
    for (const auto& flow : *flows) BE_RETURN_IF_ERROR(flow->failure());
  }
  return {};
}

bool PerfWorker::all(bool (PerfFlow::*is)() const) const {
  const auto holds = [is](const auto& flow) { return ((*flow).*is)(); };
  return std::all_of(flows_.begin(), flows_.end(), holds) &&
         std::all_of(background_.begin(), background_.end(), holds);
}

Status PerfWorker::open_session(const Address& server, uint64_t session) {
  PerfGreeting greeting;
  greeting.role = PerfGreeting::Role::kControl;
  greeting.test = plan_.test;
  greeting.session = session;
  control_ = std::make_unique<PerfControl>(*node_, greeting);
  node_->connect(server, {.connect_timeout = kPatience, .transport = {}}, control_.get());
  const bool decided = drive([this] { return control_->ready || !control_->failure.ok(); },
                             kPatience, Interruptible::kYes);
  BE_RETURN_IF_ERROR(control_->failure);
  if (decided) return {};
  if (signals_.arrived()) return Status(Code::kCancelled, "interrupted");
  return error(Code::kUnavailable, "{} does not answer our greeting", server.to_string());
}

Status PerfWorker::connect(const Address& server, uint64_t session) {
  PerfGreeting greeting;
  greeting.role = PerfGreeting::Role::kData;
  greeting.test = plan_.test;
  greeting.session = session;
  greeting.reply_bytes = plan_.reply_bytes;
  greeting.touch = plan_.touch;
  for (uint32_t i = 0; i < plan_.sockets + plan_.background; ++i) {
    auto& flows = i < plan_.sockets ? flows_ : background_;
    flows.push_back(std::make_unique<PerfFlow>(*node_, greeting, failed_));
    flows.back()->connect(server, kPatience);
  }
  const bool decided =
      drive([this] { return all(&PerfFlow::ready) || failed_; }, kPatience, Interruptible::kYes);
  BE_RETURN_IF_ERROR(first_failure());
  if (decided) return {};
  if (signals_.arrived()) return Status(Code::kCancelled, "interrupted");
  return error(Code::kUnavailable, "{} does not answer on {} sockets", server.to_string(),
               flows_.size() + background_.size());
}

Result<PerfWorker::Run> PerfWorker::run(uint32_t message_bytes, Nanoseconds duration) {
  for (auto& flow : background_) flow->start(plan_.background_bytes, kBackgroundOutstanding);
  Run run;
  run.begin = kernel_world().now();
  for (auto& flow : flows_) flow->start(message_bytes, plan_.outstanding);
  drive([this] { return failed_; }, duration, Interruptible::kYes);
  for (auto& flow : flows_) flow->stop();
  for (auto& flow : background_) flow->stop();
  const bool quiet =
      drive([this] { return failed_ || all(&PerfFlow::idle); }, kPatience, Interruptible::kNo);
  BE_RETURN_IF_ERROR(first_failure());
  if (!quiet) {
    return error(Code::kUnavailable, "replies did not come for {} s",
                 std::chrono::duration_cast<std::chrono::seconds>(kPatience).count());
  }
  run.end = run.begin;
  for (const auto& flow : flows_) {
    run.answered += flow->done().answered;
    run.times_ns.add(flow->done().times_ns);
    run.end = std::max(run.end, flow->done().last_reply);
  }
  for (const auto& flow : background_) run.background_answered += flow->done().answered;
  return run;
}

Result<PerfReport> PerfWorker::ask_report() {
  BE_RETURN_IF_ERROR(first_failure());
  BE_RETURN_IF_ERROR(control_->ask());
  const bool answered = drive([this] { return !control_->asked || !control_->failure.ok(); },
                              kPatience, Interruptible::kNo);
  BE_RETURN_IF_ERROR(control_->failure);
  if (!answered) return Status(Code::kUnavailable, "the server does not report");
  return control_->report;
}

}  // namespace be::apps
