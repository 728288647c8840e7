// The files in which a Linux machine describes itself: /sys, /proc, /dev, /lib/modules.
//
// All below one root, so that tests can give a machine that is made up. What is not there or cannot
// be read is absent, never an error. One thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace be::apps::doctor {

class Files {
 public:
  explicit Files(std::string root = "") : root_(std::move(root)) {}

  bool exists(std::string_view path) const;
  std::optional<std::string> line(std::string_view path) const;   // the first, without its end
  std::optional<uint64_t> number(std::string_view path) const;    // that the first line begins with
  std::vector<std::string> names(std::string_view folder) const;  // sorted

  // 0, or why a process may not read and write it (errno).
  int open_error(std::string_view path) const;

 private:
  std::string at(std::string_view path) const;

  std::string root_;
};

// Whether we run in a container: then devices and kernel modules are the host's to give.
bool in_container(const Files& files);

// Of the running kernel; {0, 0} if it does not say.
std::pair<int, int> kernel_version(const Files& files);

}  // namespace be::apps::doctor
