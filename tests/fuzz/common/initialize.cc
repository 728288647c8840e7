// Hostile input is logged, line by line: not while millions of inputs are tried.
#include "be/base/log.h"

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv);

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  be::set_log_level("off").ignore();
  return 0;
}
