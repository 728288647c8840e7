#include "be/softnic/doorbell.h"

#include "be/base/failpoint.h"

namespace be::softnic {

void wake_armed(uint64_t armed, uint64_t* woken, int event_fd) {
  if (armed == *woken) return;
  *woken = armed;
  BE_FAILPOINT("softnic.wake.decided");
  signal_event_fd(event_fd);
}

}  // namespace be::softnic
