// fork(): in the child every softnic device is dead, the parent is untouched.
//
// A child shares the parent's rings, sockets and epoll; one packet or doorbell from it would
// corrupt what the parent believes. So in the child each device is told before fork() returns:
// data path operations fail with EIO (poll: -1), calls of Device fail with kClosed, event
// channels report kDeviceRemoved, and tear-down touches nothing that is shared.
#pragma once

#include "be/base/status.h"

namespace be::softnic {

class SoftnicDevice;

// From open to destruction. Any thread.
void watch_forks(SoftnicDevice* device);
void unwatch_forks(SoftnicDevice* device);

Status forked_status();

}  // namespace be::softnic
