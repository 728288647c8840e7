// From the kernel to the process: is there an RDMA device, may we open it, does libibverbs drive
// it?
//
// Each check looks at one thing, pure but for the files that it reads, and says how to mend what it
// finds. In a container devices and modules are the host's to give, and the remedy says so.
#pragma once

#include <span>

#include "apps/doctor_devices.h"
#include "apps/doctor_files.h"
#include "apps/doctor_finding.h"
#include "be/verbs/hardware_device.h"

namespace be::apps::doctor {

Finding check_kernel(const Files& files, std::span<const KernelDevice> devices);

// `open_error` is what Files::open_error says of /dev/infiniband/NODE.
Finding check_node(const KernelDevice& device, int open_error, bool container);

// `listed` is what libibverbs lists. It passes over devices without a node, as does this.
Finding check_provider(const KernelDevice& device, int open_error,
                       std::span<const FoundDevice> listed);

// Whether the library takes the device, after all.
Finding check_taken(const KernelDevice& device, std::span<const FoundDevice> listed);

}  // namespace be::apps::doctor
