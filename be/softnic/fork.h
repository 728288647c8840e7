// fork(): in the child every softnic device is dead, the parent is untouched (base/fork.h).
//
// A child shares the parent's rings, sockets and epoll; one packet or doorbell from it would
// corrupt what the parent believes. So in the child each device is told before fork() returns:
// data path operations fail with EIO (poll: -1), calls of Device fail with kClosed, event
// channels report kDeviceRemoved, and tear-down touches nothing that is shared.
#pragma once

#include "be/base/fork.h"

namespace be::softnic {

inline Status forked_status() { return be::forked_status("the softnic device"); }

}  // namespace be::softnic
