#include "apps/host_name.h"

#include <unistd.h>

#include <climits>

namespace be::apps {

std::string host_name() {
  char name[HOST_NAME_MAX + 1] = {};
  return ::gethostname(name, HOST_NAME_MAX) == 0 ? name : "?";
}

}  // namespace be::apps
