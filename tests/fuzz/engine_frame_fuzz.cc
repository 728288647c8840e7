// The parser of engine frames: a frame that it takes is written back as the same bytes.
#include <cstring>
#include <vector>

#include "be/engine/frame.h"
#include "tests/common/must_hold.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace be;
  FrameHeader header;
  const char* broken = decode(data, size, header);
  if (broken != nullptr) {
    MUST_HOLD(broken[0] != '\0');
    return 0;
  }
  uint8_t written[FrameHeader::kBytes];
  encode(header, written);
  MUST_HOLD(std::memcmp(written, data, sizeof(written)) == 0);
  const size_t rest = size - FrameHeader::kBytes;
  if (is_data(header.type)) MUST_HOLD(header.length == rest);
  if (header.type == FrameType::kWriteResponse) {
    MUST_HOLD(rest == GrantedMemory::kBytes);
    uint8_t memory[GrantedMemory::kBytes];
    encode(decode_granted_memory(data + FrameHeader::kBytes), memory);
    MUST_HOLD(std::memcmp(memory, data + FrameHeader::kBytes, sizeof(memory)) == 0);
  }
  return 0;
}
