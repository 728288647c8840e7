// ChildProcess: one process with its standard streams in our hands.
//
//   stdin   lines from us (send_line)        stdout  lines to us (next_line)
//   stderr  kept: its last lines are what one wants to read when the child has died
//
// It never outlives us: the kernel kills it when this process ends, however that happens
// (PR_SET_PDEATHSIG), and the destructor kills it and waits. One thread; that thread must be the
// one that lives as long as the process (PDEATHSIG watches the thread that forked).
#pragma once

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "be/base/status.h"
#include "be/base/unique_fd.h"

namespace be::apps {

class ChildProcess {
 public:
  // `name` is for people: "server 2 (softnic)".
  static Result<std::unique_ptr<ChildProcess>> start(const std::string& name,
                                                     const std::string& program,
                                                     const std::vector<std::string>& arguments);
  ~ChildProcess();

  const std::string& name() const { return name_; }
  pid_t pid() const { return pid_; }
  int stdout_fd() const { return stdout_.get(); }  // -1 after its end
  int stderr_fd() const { return stderr_.get(); }

  // Reads what there is; call when a descriptor is readable. Never blocks.
  void read_output();
  std::optional<std::string> next_line();  // of standard output

  bool send_line(const std::string& line);  // false: it does not listen any more

  void signal(int number);  // nothing once it was waited for
  // Waits for its end. Ok if it left with 0; else how it ended and its last lines on standard
  // error: "server 2 (softnic) was killed by signal 9 (Killed): <last lines>".
  Status wait();
  int exit_code() const { return exit_code_; }        // after wait(); -1: by a signal
  const std::string& errors() const { return err_; }  // the end of its standard error

 private:
  ChildProcess(std::string name, pid_t pid) : name_(std::move(name)), pid_(pid) {}
  Status describe(int wait_status);  // remembers the exit code

  const std::string name_;
  pid_t pid_;  // -1: waited for
  UniqueFd stdin_;
  UniqueFd stdout_;
  UniqueFd stderr_;
  std::string out_;
  std::string err_;
  int exit_code_ = -1;
};

}  // namespace be::apps
