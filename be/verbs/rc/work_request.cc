#include "be/verbs/rc/work_request.h"

#include <cerrno>

namespace be::rc {

int check_send(const ibv_send_wr& request, const SendLimits& limits, uint32_t* length) {
  if (!is_message(request.opcode) && !is_write(request.opcode)) return EOPNOTSUPP;
  if (request.num_sge < 0 || static_cast<uint32_t>(request.num_sge) > limits.max_sge) {
    return EINVAL;
  }
  uint64_t total = 0;
  for (int i = 0; i < request.num_sge; ++i) total += request.sg_list[i].length;
  if (total > kMaxMessageBytes) return EINVAL;
  if ((request.send_flags & IBV_SEND_INLINE) && total > limits.max_inline_bytes) return EINVAL;
  *length = static_cast<uint32_t>(total);
  return 0;
}

}  // namespace be::rc
