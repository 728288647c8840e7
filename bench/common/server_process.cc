#include "bench/common/server_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace be::bench {
namespace {

constexpr char kSelf[] = "/proc/self/exe";

[[noreturn]] void become_server(int output, std::vector<char*> argv) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  dup2(output, STDOUT_FILENO);
  execv(kSelf, argv.data());
  _exit(127);
}

std::string read_line(int fd) {
  std::string line;
  char c = 0;
  while (read(fd, &c, 1) == 1 && c != '\n') line += c;
  return c == '\n' ? line : std::string();
}

}  // namespace

Result<std::unique_ptr<ServerProcess>> ServerProcess::start(
    const std::vector<std::string>& arguments) {
  int output[2];
  if (pipe2(output, O_CLOEXEC) != 0) return error_from_errno(errno, "pipe2");
  std::vector<char*> argv = {const_cast<char*>(kSelf)};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  const pid_t pid = fork();
  if (pid == 0) become_server(output[1], std::move(argv));
  const int fork_error = errno;
  close(output[1]);
  if (pid < 0) {
    close(output[0]);
    return error_from_errno(fork_error, "fork");
  }
  std::unique_ptr<ServerProcess> server(new ServerProcess(pid));
  server->first_line_ = read_line(output[0]);
  close(output[0]);
  if (server->first_line_.empty()) {
    return error(Code::kUnavailable, "the server process {} ended before it was ready", pid);
  }
  return server;
}

ServerProcess::~ServerProcess() {
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

}  // namespace be::bench
