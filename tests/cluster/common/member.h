// Member: a whole node of ByteExpress as a member of a test's cluster, driven by one thread, with
// an rpc server that echoes; and Traffic of all kinds between two members.
#pragma once

#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "apps/child_process.h"
#include "be/rpc/channel.h"
#include "be/rpc/server.h"
#include "be/softnic/device.h"
#include "be/transport/node.h"
#include "tests/cluster/common/machine_load.h"

namespace be::cluster {

class Traffic;

// What a process has in use and must give back.
struct ResourceUse {
  uint32_t queue_pairs = 0;
  uint32_t regions = 0;    // beside the blocks of the pool
  size_t descriptors = 0;  // in /proc/self/fd
  size_t mappings = 0;     // of memfds, in /proc/self/maps: ours and the peers'
  size_t live_bytes = 0;   // of the pool
  uint64_t allocations = 0;

  bool operator==(const ResourceUse&) const = default;
};
std::ostream& operator<<(std::ostream& out, const ResourceUse& use);

NodeOptions member_options();  // driven, softnic, a pool of 64 MiB

inline constexpr const char* kEcho = "test.echo";

class Member {
 public:
  // `add_methods`: beside the echo.
  explicit Member(const NodeOptions& options = member_options(),
                  const std::function<void(Member&, rpc::Server&)>& add_methods = nullptr);
  ~Member();  // its Traffic is gone

  Node& node() { return *node_; }
  RegisteredPool& pool() { return node_->pool(); }
  const Address& address() const { return server_->address(); }
  Time now() { return node_->world().now(); }
  uint64_t served() const { return served_; }  // echoes
  Nanoseconds kept_from_us() const { return load_.kept_from_us(); }

  // Drives the node and all Traffic until `done`; false: `patience` is at its end.
  bool drive(const std::function<bool()>& done, Nanoseconds patience);
  void drive_for(Nanoseconds time) {
    drive([] { return false; }, time);
  }
  // Drives until the other process has said a line; empty: it says none.
  std::string line_of(apps::ChildProcess& process, Nanoseconds patience);

  ResourceUse use();

 private:
  friend class Traffic;

  MachineLoad load_;
  softnic::SoftnicDevice* device_ = nullptr;
  std::unique_ptr<Node> node_;
  std::unique_ptr<rpc::Server> server_;
  uint64_t served_ = 0;
  std::vector<Traffic*> traffic_;
};

Buffer patterned(RegisteredPool& pool, size_t size, uint64_t seed);
// The same in memory that no peer can map (a SEND of it is staged).
Buffer patterned_adopted(RegisteredPool& pool, size_t size, uint64_t seed);
bool has_pattern(const Buffer& buffer, size_t size, uint64_t seed);

// Echo calls of all kinds to one server, several outstanding, each answer compared byte by byte,
// each end checked to come in its time. Channels are closed and made anew all the while.
class Traffic {
 public:
  struct Options {
    Nanoseconds call_timeout = 2s;
    Nanoseconds connect_timeout = 500ms;
    bool must_succeed = false;
    bool punctual = true;  // false: who may be stopped itself does not look at the time
    int outstanding = 4;
  };
  // What a call's end may cost beyond its deadline.
  static constexpr Nanoseconds kSlack = 100ms;

  Traffic(Member& member, const Address& server, const Options& options);
  ~Traffic();
  Traffic(const Traffic&) = delete;
  Traffic& operator=(const Traffic&) = delete;

  void step();                      // begins calls; by Member::drive
  void pause() { paused_ = true; }  // no new calls
  int outstanding() const { return outstanding_; }
  void disconnect();  // requires that it is paused and nothing outstanding
  void resume() { paused_ = false; }
  uint64_t succeeded() const { return succeeded_; }
  uint64_t failed() const { return failed_; }
  const Status& last_failure() const { return last_failure_; }
  // What was wrong: contents, lateness, failures that must not be. Empty: nothing.
  const std::vector<std::string>& complaints() const { return complaints_; }

 private:
  enum class Kind { kSmall, kFetched, kStaged, kMiddle, kWritten, kTcp, kCount };

  void begin(Kind kind);
  void end(Kind kind, size_t size, uint64_t seed, Time begun, Nanoseconds kept,
           const Result<rpc::Payload>& answer);
  void complain(std::string text);

  Member& member_;
  const Address server_;
  const Options options_;
  std::unique_ptr<rpc::Channel> channel_;
  std::unique_ptr<rpc::Channel> tcp_channel_;
  bool paused_ = false;
  int outstanding_ = 0;
  uint64_t begun_ = 0;
  uint64_t succeeded_ = 0;
  uint64_t failed_ = 0;
  Time not_before_ = Time::min();  // after a failure: a moment later
  Status last_failure_;
  std::vector<std::string> complaints_;
};

}  // namespace be::cluster
