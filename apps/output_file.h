// OutputFile: a file that appears whole or not at all.
//
// Written beside its place (PATH.<pid>.tmp), renamed by commit(), removed if never committed. It
// is opened at the start of a run, so that a directory that does not exist is known before the
// work and not after. Failure: a Status that names the path.
#pragma once

#include <cstdio>
#include <memory>
#include <string>
#include <string_view>

#include "be/base/status.h"

namespace be::apps {

class OutputFile {
 public:
  // An empty path gives an OutputFile that swallows everything: the user asked for no file.
  static Result<OutputFile> open(const std::string& path);

  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&&) = delete;
  ~OutputFile();

  bool wanted() const { return file_ != nullptr; }
  Status commit(std::string_view content);  // once

 private:
  OutputFile() = default;
  Status failed(int error_number) const;

  std::string path_;
  std::string temporary_;
  FILE* file_ = nullptr;
};

}  // namespace be::apps
