// The allocators of one run: our pool first, then glibc, then those that are preloaded.
//
// A peer of Debian's whose library is not installed is named, with its package, in `absent`: its
// bars cannot be claimed. One thread.
#pragma once

#include <string>
#include <vector>

#include "be/base/status.h"

namespace be::bench {

struct Contender {
  std::string name;
  std::string allocator = "malloc";  // of subject.h
  std::vector<std::string> environment = {};
  bool debian = false;  // one of the four that the bars name
};

struct Contenders {
  std::vector<Contender> present;
  std::vector<std::string> absent;  // "mimalloc (package libmimalloc2.0)"
};

inline constexpr char kOurs[] = "pool";

// `further`: "NAME=/path/to/library.so", of the user's.
Result<Contenders> find_contenders(const std::vector<std::string>& further);

std::vector<std::string> names_of_debians(const Contenders& contenders);

// Those peers that have a switch for transparent huge pages, told to use them; our pool, which does
// so by default, and our pool told not to.
Contenders with_huge_pages(const Contenders& contenders);

}  // namespace be::bench
