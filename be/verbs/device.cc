#include "be/verbs/device.h"

namespace be {

std::string_view device_kind_name(DeviceKind kind) {
  switch (kind) {
    case DeviceKind::kHardware:
      return "hardware";
    case DeviceKind::kSoftnic:
      return "softnic";
    case DeviceKind::kSimulated:
      return "simulated";
  }
  return "unknown device kind";
}

}  // namespace be
