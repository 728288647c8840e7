// PerfService: what `byteexpress perf server` does with the sockets it accepts.
//
//   kGreeting --Greeting of a data socket--> kData: each message is counted and answered
//       |      --of a control socket-------> kControl: ReportRequest -> Report
//       '------anything else-----------------> closed, told why by a Welcome
//
// Any number of clients at once, each a session. What a client can make us hold is bounded:
// kMaxSockets sockets, kMaxSessions sessions; who does not read its replies is closed.
//
// accept() and the handlers run on I/O threads. The service outlives its listener and node's
// sockets. Lines for people go to `say`, on any of these threads.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "apps/perf_protocol.h"
#include "be/transport/node.h"

namespace be::apps {

class PerfService {
 public:
  static constexpr size_t kMaxSockets = 8192;
  static constexpr size_t kMaxSessions = 256;

  struct Callbacks {
    std::function<void(const std::string&)> say;
    std::function<void()> session_ended;
  };

  PerfService(Node& node, Callbacks callbacks);
  ~PerfService();  // all sockets are closed
  PerfService(const PerfService&) = delete;
  PerfService& operator=(const PerfService&) = delete;

  SocketHandler* accept(Socket& socket);  // an Acceptor

 private:
  class Peer;
  struct Session;

  // The control socket makes a session, data sockets join it.
  Result<std::shared_ptr<Session>> join(const PerfGreeting& greeting, const Socket& socket);
  void ended(Peer* peer, const Status& status);
  PerfReport report(const Session& session, const Socket& socket);

  Node& node_;
  const Callbacks callbacks_;
  std::mutex mutex_;  // of both maps
  std::map<Peer*, std::unique_ptr<Peer>> peers_;
  std::map<uint64_t, std::shared_ptr<Session>> sessions_;  // whose control socket is open
};

}  // namespace be::apps
