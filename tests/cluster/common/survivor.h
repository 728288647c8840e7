// Survivor: the process that is tested, between a healthy peer, whose traffic must go on whatever
// happens, and victims: peers that are stopped or killed.
//
//   healthy  <-- traffic, all must succeed --  survivor  <-- traffic both ways -->  victim
//
// A victim lives in short lives: a node, traffic to the survivor, the orderly end of the node, and
// again; so it passes every failpoint again and again until the one where it is stopped or killed.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tests/cluster/common/member.h"
#include "tests/cluster/common/peer_role.h"

namespace be::cluster {

// At a failpoint, the `hit`-th time; no name: nowhere.
struct Fate {
  std::string failpoint;
  int hit = 1;
  bool stop = false;  // else kill
};

class Survivor {
 public:
  explicit Survivor(const NodeOptions& options = member_options());

  Member& member() { return member_; }
  Traffic& healthy() { return *healthy_traffic_; }

  // Drives with the traffic to the healthy peer only, until our use of resources is `start`.
  bool returns_to(const ResourceUse& start, Nanoseconds within);
  // Drives a while. What an engine holds for receives differs with the phase of its queue: this
  // is the least, which is the same whenever it is in use.
  ResourceUse settled();

 private:
  Member member_;
  std::unique_ptr<apps::ChildProcess> healthy_;
  Address healthy_address_;
  std::unique_ptr<rpc::Channel> settling_;
  std::unique_ptr<Traffic> healthy_traffic_;
};

class Victim {
 public:
  // `options`: of the traffic, both ways.
  Victim(Survivor& survivor, const Fate& fate, const Traffic::Options& options);
  ~Victim();  // kills it

  // Drives the survivor, with traffic to wherever the victim listens, until it is in `state`.
  bool drive_until(ProcessState state, Nanoseconds patience);
  bool drive_until(const std::function<bool()>& done, Nanoseconds patience);
  void signal(int number) { process_->signal(number); }
  int end_signal();  // waits for its end; 0: it was no signal

  uint64_t succeeded() const;  // calls to it, in all its lives
  // Of the traffic to it and, said by itself, from it.
  std::vector<std::string> complaints() const;

 private:
  void follow();
  void end_traffic();

  Survivor& survivor_;
  const Traffic::Options options_;
  std::unique_ptr<apps::ChildProcess> process_;
  std::unique_ptr<Traffic> traffic_;
  uint64_t succeeded_ = 0;  // of earlier lives
  std::vector<std::string> complaints_;
};

}  // namespace be::cluster
