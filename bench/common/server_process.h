// The other side of a benchmark: this same program, started again as a process of its own.
//
//   ServerProcess server({"--server", ...});      // fork + exec; killed by the destructor
//   server.first_line()                            // what it said when it was ready
//
// It is killed too when this process dies. One thread. A server that cannot be started, or ends
// without a word, is a Status that names it; what it complains of is on the common stderr.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "be/base/status.h"

namespace be::bench {

class ServerProcess {
 public:
  static Result<std::unique_ptr<ServerProcess>> start(const std::vector<std::string>& arguments);
  ~ServerProcess();
  ServerProcess(const ServerProcess&) = delete;
  ServerProcess& operator=(const ServerProcess&) = delete;

  pid_t pid() const { return pid_; }
  const std::string& first_line() const { return first_line_; }

 private:
  explicit ServerProcess(pid_t pid) : pid_(pid) {}
  pid_t pid_;
  std::string first_line_;
};

}  // namespace be::bench
