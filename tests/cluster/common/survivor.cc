#include "tests/cluster/common/survivor.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>

#include "be/base/failpoint.h"

namespace be::cluster {
namespace {

constexpr uint64_t kVictimCalls = 20;    // each way, in one life
constexpr Nanoseconds kVictimLife = 3s;  // at most
constexpr Nanoseconds kVictimRest = 10ms;
constexpr Nanoseconds kHealthyPatience = 10s;
constexpr int kSettlingCalls = 40;  // more than the receives of a queue
constexpr size_t kSettlingBytes = 4096;

const PeerRole kHealthyRole("healthy", [](const std::vector<std::string>&) {
  Member member;
  say(member.address().to_string());
  for (;;) member.drive_for(1s);
  return 0;
});

// Arguments: the survivor's address, call timeout (ms), failpoint, hit, "stop" or "kill".
const PeerRole kVictimRole("victim", [](const std::vector<std::string>& arguments) {
  const Address survivor = Address::parse(arguments.at(0)).value();
  Traffic::Options options;
  options.call_timeout = std::stoi(arguments.at(1)) * 1ms;
  options.punctual = arguments.at(4) == "kill";
#ifdef BE_FAILPOINTS
  if (!arguments.at(2).empty()) {
    failpoint::arm(arguments.at(2), static_cast<uint32_t>(std::stoul(arguments.at(3))),
                   arguments.at(4) == "stop" ? failpoint::Action::kStop : failpoint::Action::kKill);
  }
#endif
  for (;;) {
    Member member;
    say("listening " + member.address().to_string());
    Traffic traffic(member, survivor, options);
    member.drive(
        [&] { return traffic.succeeded() >= kVictimCalls && member.served() >= kVictimCalls; },
        kVictimLife);
    traffic.pause();
    member.drive_for(kVictimRest);
    for (const std::string& complaint : traffic.complaints()) say("complaint " + complaint);
  }
  return 0;
});

}  // namespace

Survivor::Survivor(const NodeOptions& options)
    : member_(options), healthy_(start_peer("healthy", {})) {
  const std::string line = member_.line_of(*healthy_, kHealthyPatience);
  if (line.empty()) {
    ADD_FAILURE() << "the healthy peer does not start: " << healthy_->errors();
    std::abort();
  }
  healthy_address_ = Address::parse(line).value();
  rpc::ChannelOptions channel;
  channel.connect_timeout = channel.request_timeout = kHealthyPatience;
  settling_ = rpc::Channel::create(member_.node(), healthy_address_, channel);
  Traffic::Options traffic;
  traffic.must_succeed = true;
  traffic.call_timeout = traffic.connect_timeout = kHealthyPatience;
  healthy_traffic_ = std::make_unique<Traffic>(member_, healthy_address_, traffic);
}

ResourceUse Survivor::settled() {
  healthy_traffic_->pause();
  EXPECT_TRUE(
      member_.drive([this] { return healthy_traffic_->outstanding() == 0; }, kHealthyPatience));
  healthy_traffic_->disconnect();
  ResourceUse least;
  for (int i = 0; i < kSettlingCalls; ++i) {
    const auto answer = settling_->call_and_wait(
        rpc::method_id(kEcho), {patterned(member_.pool(), kSettlingBytes, 1), {}}, {});
    EXPECT_TRUE(answer.ok()) << answer.status().to_string();
    ResourceUse use = member_.use();
    if (i > 0) {
      use.live_bytes = std::min(use.live_bytes, least.live_bytes);
      use.allocations = std::min(use.allocations, least.allocations);
    }
    least = use;
  }
  healthy_traffic_->resume();
  return least;
}

bool Survivor::returns_to(const ResourceUse& start, Nanoseconds within) {
  const Time end = member_.now() + within;
  for (;;) {
    const ResourceUse use = settled();
    if (use == start) return true;
    if (member_.now() >= end) {
      ADD_FAILURE() << "at the start: " << start << "\nnow:          " << use;
      return false;
    }
    member_.drive_for(10ms);
  }
}

Victim::Victim(Survivor& survivor, const Fate& fate, const Traffic::Options& options)
    : survivor_(survivor),
      options_(options),
      process_(start_peer("victim", {survivor.member().address().to_string(),
                                     std::to_string(options.call_timeout / 1ms), fate.failpoint,
                                     std::to_string(fate.hit), fate.stop ? "stop" : "kill"})) {}

Victim::~Victim() = default;

void Victim::follow() {
  process_->read_output();
  while (const auto line = process_->next_line()) {
    if (line->starts_with("complaint ")) complaints_.push_back("victim: " + *line);
    if (!line->starts_with("listening ")) continue;
    end_traffic();
    traffic_ = std::make_unique<Traffic>(survivor_.member(),
                                         Address::parse(line->substr(10)).value(), options_);
  }
}

void Victim::end_traffic() {
  if (!traffic_) return;
  const auto& more = traffic_->complaints();
  complaints_.insert(complaints_.end(), more.begin(), more.end());
  succeeded_ += traffic_->succeeded();
  traffic_.reset();
}

uint64_t Victim::succeeded() const { return succeeded_ + (traffic_ ? traffic_->succeeded() : 0); }

bool Victim::drive_until(const std::function<bool()>& done, Nanoseconds patience) {
  const Time end = survivor_.member().now() + patience;
  for (;;) {
    follow();
    if (done()) return true;
    if (survivor_.member().now() >= end) return false;
    survivor_.member().drive_for(5ms);
  }
}

bool Victim::drive_until(ProcessState state, Nanoseconds patience) {
  return drive_until([&] { return state_of(process_->pid()) == state; }, patience);
}

int Victim::end_signal() {
  siginfo_t info{};
  if (::waitid(P_PID, static_cast<id_t>(process_->pid()), &info, WEXITED | WNOWAIT) != 0) return 0;
  process_->wait().ignore();
  return info.si_code == CLD_KILLED || info.si_code == CLD_DUMPED ? info.si_status : 0;
}

std::vector<std::string> Victim::complaints() const {
  std::vector<std::string> all = complaints_;
  if (traffic_) all.insert(all.end(), traffic_->complaints().begin(), traffic_->complaints().end());
  return all;
}

}  // namespace be::cluster
