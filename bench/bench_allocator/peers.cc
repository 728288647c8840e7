#include "bench/bench_allocator/peers.h"

#include <filesystem>
#include <optional>

namespace be::bench {
namespace {

struct Packaged {
  const char* name;
  const char* library;
  const char* package;
  std::vector<std::string> huge_pages;  // the switch
};

// gperftools 2.10 knows huge pages only as a mounted hugetlbfs: no switch.
// mimalloc has renamed its switch (2.1).
const std::vector<Packaged>& packaged() {
  static const std::vector<Packaged> all = {
      {"jemalloc",
       "libjemalloc.so.2",
       "libjemalloc2",
       {"MALLOC_CONF=thp:always,metadata_thp:auto"}},
      {"tcmalloc", "libtcmalloc_minimal.so.4", "libtcmalloc-minimal4", {}},
      {"mimalloc",
       "libmimalloc.so.2",
       "libmimalloc2.0",
       {"MIMALLOC_LARGE_OS_PAGES=1", "MIMALLOC_ALLOW_LARGE_OS_PAGES=1"}}};
  return all;
}

std::vector<std::string> huge_page_switch(const std::string& name) {
  if (name == "glibc") return {"GLIBC_TUNABLES=glibc.malloc.hugetlb=1"};
  for (const Packaged& peer : packaged()) {
    if (name == peer.name) return peer.huge_pages;
  }
  return {};
}

// Where Debian puts libraries, on any architecture: /usr/lib/<triplet>.
std::optional<std::string> find_library(const std::string& name) {
  std::error_code failure;
  std::vector<std::filesystem::path> folders = {"/usr/lib"};
  for (const auto& entry : std::filesystem::directory_iterator("/usr/lib", failure)) {
    if (entry.path().filename().string().find("-linux-gnu") != std::string::npos) {
      folders.push_back(entry.path());
    }
  }
  for (const std::filesystem::path& folder : folders) {
    if (std::filesystem::exists(folder / name, failure)) return (folder / name).string();
  }
  return std::nullopt;
}

}  // namespace

Result<Contenders> find_contenders(const std::vector<std::string>& further) {
  Contenders contenders;
  contenders.present.push_back({.name = kOurs, .allocator = "pool"});
  contenders.present.push_back({.name = "glibc", .debian = true});
  for (const Packaged& peer : packaged()) {
    if (const auto library = find_library(peer.library)) {
      contenders.present.push_back(
          {.name = peer.name, .environment = {"LD_PRELOAD=" + *library}, .debian = true});
    } else {
      contenders.absent.push_back(fmt::format("{} (package {})", peer.name, peer.package));
    }
  }
  for (const std::string& peer : further) {
    const size_t equals = peer.find('=');
    const std::string library = equals == std::string::npos ? "" : peer.substr(equals + 1);
    if (library.empty() || !std::filesystem::exists(library)) {
      return error(Code::kInvalidArgument, "--peer {}: not NAME=/path/to/library.so", peer);
    }
    contenders.present.push_back(
        {.name = peer.substr(0, equals), .environment = {"LD_PRELOAD=" + library}});
  }
  return contenders;
}

std::vector<std::string> names_of_debians(const Contenders& contenders) {
  std::vector<std::string> names;
  for (const Contender& contender : contenders.present) {
    if (contender.debian) names.push_back(contender.name);
  }
  return names;
}

Contenders with_huge_pages(const Contenders& contenders) {
  Contenders told;
  for (Contender contender : contenders.present) {
    const std::vector<std::string> variables = huge_page_switch(contender.name);
    contender.environment.insert(contender.environment.end(), variables.begin(), variables.end());
    if (contender.name == kOurs || !variables.empty()) told.present.push_back(contender);
    if (contender.name == kOurs) {
      told.present.push_back({.name = "pool, small pages", .allocator = "pool without huge pages"});
    }
  }
  return told;
}

}  // namespace be::bench
