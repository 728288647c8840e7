#include "apps/seed_workers.h"

#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <sstream>
#include <vector>

#include "apps/seed_report.h"
#include "be/base/hash.h"
#include "be/base/unique_fd.h"

namespace be::apps {
namespace {

using SteadyTime = std::chrono::steady_clock::time_point;
constexpr std::chrono::seconds kHang{120};
constexpr int kPollMilliseconds = 200;

// What a worker writes: a line "begin SEED", then "end SEED HAPPENINGS NANOSECONDS HASH", or
// "failed SEED" and the report until it exits.
class Worker {
 public:
  Worker(unsigned number, pid_t pid, UniqueFd fd)
      : number_(number), pid_(pid), fd_(std::move(fd)) {}

  unsigned number() const { return number_; }
  int fd() const { return fd_.get(); }
  bool running() const { return fd_.valid(); }
  void kill() const { ::kill(pid_, SIGKILL); }
  bool hangs(SteadyTime now) const { return running() && seed_ != 0 && now - begun_ > kHang; }

  void read(SeedTotals& totals, SeedFailure& failure);

 private:
  void take_lines(SeedTotals& totals);
  void ended(SeedFailure& failure);

  const unsigned number_;
  const pid_t pid_;
  UniqueFd fd_;
  std::string text_;
  uint64_t seed_ = 0;  // being run; 0: none
  SteadyTime begun_;
};

void Worker::read(SeedTotals& totals, SeedFailure& failure) {
  char bytes[4096];
  const ssize_t count = ::read(fd_.get(), bytes, sizeof(bytes));
  if (count > 0) {
    text_.append(bytes, static_cast<size_t>(count));
    return take_lines(totals);
  }
  if (count < 0 && errno == EINTR) return;
  ended(failure);
}

void Worker::take_lines(SeedTotals& totals) {
  for (;;) {
    const size_t end = text_.find('\n');
    if (end == std::string::npos || text_.starts_with("failed")) return;
    std::istringstream line(text_.substr(0, end));
    text_.erase(0, end + 1);
    std::string what;
    line >> what >> seed_;
    begun_ = std::chrono::steady_clock::now();
    if (what != "end") continue;
    uint64_t happenings = 0;
    uint64_t nanoseconds = 0;
    uint64_t hash = 0;
    line >> happenings >> nanoseconds >> hash;
    ++totals.seeds;
    totals.happenings += happenings;
    totals.virtual_seconds += static_cast<double>(nanoseconds) / 1e9;
    totals.hash ^= mix64(seed_, hash);
    seed_ = 0;
  }
}

void Worker::ended(SeedFailure& failure) {
  fd_.reset();
  int status = 0;
  while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  const bool clean = WIFEXITED(status) && WEXITSTATUS(status) == 0;
  if (clean || failure.seed != 0) return;
  failure.seed = seed_;
  if (text_.starts_with("failed")) {
    failure.report = text_.substr(text_.find('\n') + 1);
  } else if (WIFSIGNALED(status)) {
    failure.report = fmt::format("seed {}: the process was ended by signal {} ({})\n", seed_,
                                 WTERMSIG(status), strsignal(WTERMSIG(status)));
  } else {
    failure.report = fmt::format("seed {}: the process left with {}\n", seed_, WEXITSTATUS(status));
  }
}

void write_all(int fd, const std::string& text) {
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t count = write(fd, text.data() + done, text.size() - done);
    if (count < 0 && errno != EINTR) _exit(2);
    if (count > 0) done += static_cast<size_t>(count);
  }
}

[[noreturn]] void fail(int fd, const sim::Outcome& outcome) {
  write_all(fd, fmt::format("failed {}\n{}", outcome.seed, seed_report(outcome)));
  _exit(1);
}

[[noreturn]] void work(const SeedRange& range, unsigned number, int fd) {
  const auto violated = [fd](const sim::Outcome& outcome) { fail(fd, outcome); };
  for (uint64_t i = number; i < range.count; i += range.jobs) {
    const uint64_t seed = range.first + i;
    write_all(fd, fmt::format("begin {}\n", seed));
    sim::Outcome outcome = sim::run_seed(seed, violated);
    if (range.twice_one_in != 0 && seed % range.twice_one_in == 0) {
      const sim::Outcome again = sim::run_seed(seed, violated);
      if (again.hash != outcome.hash) {
        outcome.violation = fmt::format("run twice, the traces differ: {:016x} and {:016x}",
                                        outcome.hash, again.hash);
        fail(fd, outcome);
      }
    }
    write_all(fd, fmt::format("end {} {} {} {}\n", seed, outcome.happenings,
                              outcome.virtual_time.count(), outcome.hash));
  }
  _exit(0);
}

Result<Worker> start_worker(const SeedRange& range, unsigned number) {
  int ends[2];
  if (pipe(ends) != 0) return error_from_errno(errno, "pipe");
  UniqueFd reading(ends[0]);
  UniqueFd writing(ends[1]);
  const pid_t pid = fork();
  if (pid < 0) return error_from_errno(errno, "fork");
  if (pid == 0) {
    signal(SIGPIPE, SIG_DFL);
    reading.reset();
    work(range, number, writing.get());
  }
  return Worker(number, pid, std::move(reading));
}

}  // namespace

Status run_seeds(const SeedRange& range, SeedTotals& totals, SeedFailure& failure,
                 const std::function<void(const SeedTotals&)>& progress) {
  std::fflush(nullptr);
  std::vector<Worker> workers;
  for (unsigned number = 0; number < range.jobs; ++number) {
    BE_ASSIGN_OR_RETURN(Worker worker, start_worker(range, number));
    workers.push_back(std::move(worker));
  }
  for (;;) {
    std::vector<pollfd> polled;
    for (const Worker& worker : workers) {
      if (worker.running()) polled.push_back({worker.fd(), POLLIN, 0});
    }
    if (polled.empty()) return {};
    if (poll(polled.data(), polled.size(), kPollMilliseconds) < 0 && errno != EINTR) {
      return error_from_errno(errno, "poll");
    }
    for (Worker& worker : workers) {
      const auto ready = std::find_if(polled.begin(), polled.end(), [&](const pollfd& entry) {
        return entry.fd == worker.fd() && entry.revents != 0;
      });
      if (ready != polled.end()) worker.read(totals, failure);
      if (worker.hangs(std::chrono::steady_clock::now())) worker.kill();
    }
    if (failure.seed != 0) {
      for (const Worker& worker : workers) {
        if (worker.running()) worker.kill();
      }
    }
    progress(totals);
  }
}

}  // namespace be::apps
