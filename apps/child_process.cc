#include "apps/child_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>

namespace be::apps {
namespace {

constexpr size_t kKeptErrorBytes = 4096;

struct Pipe {
  UniqueFd read;
  UniqueFd write;
};

Result<Pipe> make_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return error_from_errno(errno, "pipe");
  return Pipe{UniqueFd(ends[0]), UniqueFd(ends[1])};
}

// In the child, after fork: only async-signal-safe calls.
[[noreturn]] void become(const char* program, char* const* arguments, pid_t parent,
                         const int* fds) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(127);  // it died before prctl
  for (int fd = 0; fd < 3; ++fd) ::dup2(fds[fd], fd);
  ::signal(SIGPIPE, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::execv(program, arguments);
  constexpr char kFailed[] = "exec failed\n";
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, kFailed, sizeof(kFailed) - 1);
  ::_exit(127);
}

// Appends what can be read now; closes `fd` at its end.
void drain(UniqueFd& fd, std::string& into) {
  std::array<char, 4096> chunk;
  while (fd.valid()) {
    const ssize_t got = ::read(fd.get(), chunk.data(), chunk.size());
    if (got > 0) {
      into.append(chunk.data(), static_cast<size_t>(got));
    } else if (got < 0 && errno == EINTR) {
      continue;
    } else if (got < 0 && errno == EAGAIN) {
      return;
    } else {
      fd.reset();
    }
  }
}

}  // namespace

Result<std::unique_ptr<ChildProcess>> ChildProcess::start(
    const std::string& name, const std::string& program,
    const std::vector<std::string>& arguments) {
  BE_ASSIGN_OR_RETURN(Pipe in, make_pipe());
  BE_ASSIGN_OR_RETURN(Pipe out, make_pipe());
  BE_ASSIGN_OR_RETURN(Pipe err, make_pipe());
  std::vector<char*> argv = {const_cast<char*>(program.c_str())};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  const int fds[3] = {in.read.get(), out.write.get(), err.write.get()};
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) return error_from_errno(errno, "fork for " + name);
  if (pid == 0) become(program.c_str(), argv.data(), parent, fds);

  std::unique_ptr<ChildProcess> child(new ChildProcess(name, pid));
  child->stdin_ = std::move(in.write);
  child->stdout_ = std::move(out.read);
  child->stderr_ = std::move(err.read);
  ::fcntl(child->stdin_.get(), F_SETFL, O_NONBLOCK);
  ::fcntl(child->stdout_.get(), F_SETFL, O_NONBLOCK);
  ::fcntl(child->stderr_.get(), F_SETFL, O_NONBLOCK);
  return child;
}

ChildProcess::~ChildProcess() {
  signal(SIGKILL);
  wait().ignore();
}

void ChildProcess::read_output() {
  drain(stdout_, out_);
  drain(stderr_, err_);
  if (err_.size() > kKeptErrorBytes) err_.erase(0, err_.size() - kKeptErrorBytes);
}

std::optional<std::string> ChildProcess::next_line() {
  const size_t end = out_.find('\n');
  if (end == std::string::npos) return std::nullopt;
  std::string line = out_.substr(0, end);
  out_.erase(0, end + 1);
  return line;
}

bool ChildProcess::send_line(const std::string& line) {
  const std::string text = line + "\n";
  return ::write(stdin_.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
}

void ChildProcess::signal(int number) {
  if (pid_ > 0) ::kill(pid_, number);
}

Status ChildProcess::wait() {
  if (pid_ < 0) return ok_status();
  stdin_.reset();
  // Its pipes first: a child that fills one would never end.
  while (stdout_.valid() || stderr_.valid()) {
    std::array<pollfd, 2> waits = {{{stdout_.get(), POLLIN, 0}, {stderr_.get(), POLLIN, 0}}};
    ::poll(waits.data(), waits.size(), -1);
    read_output();
  }
  int wait_status = 0;
  while (::waitpid(pid_, &wait_status, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
  return describe(wait_status);
}

Status ChildProcess::describe(int wait_status) {
  std::string how;
  if (WIFSIGNALED(wait_status)) {
    how = fmt::format("was killed by signal {} ({})", WTERMSIG(wait_status),
                      strsignal(WTERMSIG(wait_status)));
  } else {
    exit_code_ = WEXITSTATUS(wait_status);
    if (exit_code_ == 0) return ok_status();
    how = fmt::format("ended with exit code {}", exit_code_);
  }
  std::string said = err_.empty() ? " and said nothing" : ":\n" + err_;
  if (said.back() == '\n') said.pop_back();
  return error(Code::kUnavailable, "{} {}{}", name_, how, said);
}

}  // namespace be::apps
