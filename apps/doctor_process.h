// What this process may do with memory: pin it, have it in huge pages, fork with it.
//
// Pure but for the files that are read.
#pragma once

#include <cstddef>
#include <cstdint>

#include "apps/doctor_files.h"
#include "apps/doctor_finding.h"
#include "be/memory/pool_options.h"
#include "be/verbs/hardware/memlock.h"

namespace be::apps::doctor {

// All devices pin all registered memory (be/verbs/hardware/memlock.h), softnic and TCP none.
Finding check_memlock(const hardware::Memlock& memlock, uint64_t cap_bytes, size_t devices,
                      bool container);

Finding check_huge_pages(const Files& files, HugePages wanted, uint64_t cap_bytes);

Finding check_fork(const Files& files);

}  // namespace be::apps::doctor
