#include "be/softnic/fork.h"

#include <pthread.h>

#include <mutex>
#include <vector>

#include "be/softnic/device.h"

namespace be::softnic {
namespace {

struct Registry {
  std::mutex mutex;
  std::vector<SoftnicDevice*> devices;
};

// Never destroyed: a fork may come while the process ends.
Registry& registry() {
  static Registry* const instance = [] {
    auto* made = new Registry;
    pthread_atfork([] { registry().mutex.lock(); }, [] { registry().mutex.unlock(); },
                   [] {
                     for (SoftnicDevice* device : registry().devices) device->die_in_child();
                     registry().mutex.unlock();
                   });
    return made;
  }();
  return *instance;
}

}  // namespace

void watch_forks(SoftnicDevice* device) {
  Registry& all = registry();
  std::lock_guard lock(all.mutex);
  all.devices.push_back(device);
}

void unwatch_forks(SoftnicDevice* device) {
  Registry& all = registry();
  std::lock_guard lock(all.mutex);
  std::erase(all.devices, device);
}

Status forked_status() {
  return error(Code::kClosed,
               "softnic: the device was opened before fork() and is dead in the child");
}

}  // namespace be::softnic
