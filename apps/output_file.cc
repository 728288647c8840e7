#include "apps/output_file.h"

#include <unistd.h>

#include <cerrno>
#include <utility>

namespace be::apps {

OutputFile::OutputFile(OutputFile&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_(std::move(other.temporary_)),
      file_(std::exchange(other.file_, nullptr)) {}

OutputFile::~OutputFile() {
  if (file_ == nullptr) return;
  std::fclose(file_);
  ::unlink(temporary_.c_str());
}

Status OutputFile::failed(int error_number) const {
  return error_from_errno(error_number, "writing " + path_);
}

Result<OutputFile> OutputFile::open(const std::string& path) {
  OutputFile output;
  if (path.empty()) return output;
  output.path_ = path;
  output.temporary_ = path + "." + std::to_string(::getpid()) + ".tmp";
  output.file_ = std::fopen(output.temporary_.c_str(), "wbe");
  if (output.file_ == nullptr) return output.failed(errno);
  return output;
}

Status OutputFile::commit(std::string_view content) {
  if (file_ == nullptr) return ok_status();
  const bool written = std::fwrite(content.data(), 1, content.size(), file_) == content.size() &&
                       std::fflush(file_) == 0;
  if (!written) return failed(errno);
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) return failed(errno);
  std::fclose(std::exchange(file_, nullptr));
  return ok_status();
}

}  // namespace be::apps
