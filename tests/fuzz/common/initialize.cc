// Hostile input is logged, line by line: not while millions of inputs are tried.
#include <google/protobuf/stubs/logging.h>

#include "be/base/log.h"

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv);

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  be::set_log_level("off").ignore();
  google::protobuf::SetLogHandler(nullptr);
  return 0;
}
