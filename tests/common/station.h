// A softnic device with everything that one end needs, made once a process; and the memory behind
// it. What an input makes of it (queue pairs, engines) goes away with the input.
#pragma once

#include <fcntl.h>
#include <infiniband/verbs.h>
#include <unistd.h>

#include <memory>
#include <vector>

#include "be/memory/registered_pool.h"
#include "be/softnic/device.h"
#include "be/softnic/softnic_device.h"
#include "tests/common/must_hold.h"

namespace be::test {

inline constexpr uint8_t kToken[16] = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3};

struct Station {
  explicit Station(size_t cap_bytes = size_t{4} << 20) {
    device = open_softnic({}).value();
    channel = device->create_event_channel().value();
    cq = device->create_cq(1024, channel.get(), nullptr, nullptr).value();
    pool =
        RegisteredPool::create({.block_bytes = size_t{64} << 10, .cap_bytes = cap_bytes}).value();
    MUST_HOLD(pool->add_device(device.get()).value() == 0);
  }
  ~Station() {
    MUST_HOLD(device->destroy_cq(cq).ok());
    channel.reset();
    pool.reset();
  }
  Station(const Station&) = delete;
  Station& operator=(const Station&) = delete;

  softnic::SoftnicDevice& inside() { return static_cast<softnic::SoftnicDevice&>(*device); }
  std::vector<DeviceEvent> events() {
    std::vector<DeviceEvent> taken;
    channel->take_events(taken);
    return taken;
  }

  std::unique_ptr<Device> device;
  std::unique_ptr<EventChannel> channel;
  ibv_cq* cq = nullptr;
  std::unique_ptr<RegisteredPool> pool;
};

// What leaks descriptors with every input is soon seen. Called after each.
inline void expect_no_more_descriptors() {
  const int fd = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0);  // the lowest that is free
  MUST_HOLD(fd >= 0);
  ::close(fd);
  static const int most = fd + 16;  // libFuzzer has files open at times
  MUST_HOLD(fd <= most);
}

}  // namespace be::test
