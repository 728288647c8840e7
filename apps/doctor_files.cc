#include "apps/doctor_files.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "be/base/unique_fd.h"

namespace be::apps::doctor {

std::string Files::at(std::string_view path) const { return root_ + std::string(path); }

bool Files::exists(std::string_view path) const {
  std::error_code failure;
  return std::filesystem::exists(at(path), failure);
}

std::optional<std::string> Files::line(std::string_view path) const {
  std::ifstream file(at(path));
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  return line;
}

std::optional<uint64_t> Files::number(std::string_view path) const {
  const std::optional<std::string> text = line(path);
  if (!text) return std::nullopt;
  uint64_t value = 0;
  const auto [stop, failure] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (failure != std::errc()) return std::nullopt;
  return value;
}

std::vector<std::string> Files::names(std::string_view folder) const {
  std::vector<std::string> names;
  std::error_code failure;
  for (std::filesystem::directory_iterator each(at(folder), failure), end; !failure && each != end;
       each.increment(failure)) {
    names.push_back(each->path().filename());
  }
  std::sort(names.begin(), names.end());
  return names;
}

int Files::open_error(std::string_view path) const {
  const UniqueFd fd(::open(at(path).c_str(), O_RDWR | O_CLOEXEC));
  return fd.valid() ? 0 : errno;
}

bool in_container(const Files& files) {
  for (const char* mark : {"/.dockerenv", "/run/.containerenv", "/run/systemd/container",
                           "/run/secrets/kubernetes.io"}) {
    if (files.exists(mark)) return true;
  }
  return false;
}

std::pair<int, int> kernel_version(const Files& files) {
  std::pair<int, int> version = {0, 0};
  const std::string release = files.line("/proc/sys/kernel/osrelease").value_or("");
  if (std::sscanf(release.c_str(), "%d.%d", &version.first, &version.second) != 2) return {0, 0};
  return version;
}

}  // namespace be::apps::doctor
