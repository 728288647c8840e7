// Roles: what a test program plays in processes of its own, as the peers of the one that tests.
//
//   PeerRole kEcho("echo", [](const std::vector<std::string>& arguments) { ...; return 0; });
//   auto child = start_peer("echo", {"127.0.0.1:4000"});      // cluster_x --peer echo
//   127.0.0.1:4000
//
// The other process is executed anew, so it has nothing of this one's devices and descriptors. It
// talks to the test by lines: say() there, next_line() of its ChildProcess here.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apps/child_process.h"

namespace be::cluster {

inline constexpr const char* kPeerFlag = "--peer";

class PeerRole {
 public:
  using Body = int (*)(const std::vector<std::string>& arguments);  // returns the exit code
  PeerRole(const char* name, Body body);
};

int play_role(const std::string& name, const std::vector<std::string>& arguments);

std::unique_ptr<apps::ChildProcess> start_peer(const std::string& role,
                                               const std::vector<std::string>& arguments);

// --- In the peer ---
void say(const std::string& line);

// --- In the test ---
enum class ProcessState { kRunning, kStopped, kEnded };
ProcessState state_of(pid_t pid);  // without taking note of it: wait() still works

}  // namespace be::cluster
