#include "tests/cluster/common/peer_role.h"

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <utility>

namespace be::cluster {
namespace {

std::map<std::string, PeerRole::Body>& roles() {
  static std::map<std::string, PeerRole::Body> instance;
  return instance;
}

}  // namespace

PeerRole::PeerRole(const char* name, Body body) { roles()[name] = body; }

int play_role(const std::string& name, const std::vector<std::string>& arguments) {
  const auto found = roles().find(name);
  if (found == roles().end()) {
    std::fprintf(stderr, "no role is called %s\n", name.c_str());
    return 2;
  }
  return found->second(arguments);
}

std::unique_ptr<apps::ChildProcess> start_peer(const std::string& role,
                                               const std::vector<std::string>& arguments) {
  std::vector<std::string> all = {kPeerFlag, role};
  all.insert(all.end(), arguments.begin(), arguments.end());
  auto child = apps::ChildProcess::start(role, "/proc/self/exe", all);
  if (child.ok()) return std::move(*child);
  ADD_FAILURE() << child.status().to_string();
  std::abort();
}

void say(const std::string& line) {
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

ProcessState state_of(pid_t pid) {
  siginfo_t info{};
  const int result =
      ::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WSTOPPED | WNOHANG | WNOWAIT);
  if (result != 0) return ProcessState::kEnded;
  if (info.si_pid == 0) return ProcessState::kRunning;
  return info.si_code == CLD_STOPPED ? ProcessState::kStopped : ProcessState::kEnded;
}

}  // namespace be::cluster
