// Which port of a bonded adapter the next queue pair sends through: the one with the fewest.
//
//   counts differ by at most one while queue pairs only come; where some have gone, the next ones
//   fill the gap first                                     (a queue pair that lives is never moved:
//                                                           its packets would overtake each other)
//
// Ports are numbered from 1, as mlx5dv_modify_qp_lag_port does. Pure; one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace be::hardware {

class PortSpread {
 public:
  explicit PortSpread(uint8_t ports) : queue_pairs_(ports, 0) {}  // 0: nothing to spread over

  size_t ports() const { return queue_pairs_.size(); }
  uint8_t take();                // requires ports() > 0; of equal ones the lowest
  void give_back(uint8_t port);  // that take() gave

  const std::vector<uint32_t>& queue_pairs() const { return queue_pairs_; }  // by port - 1

 private:
  std::vector<uint32_t> queue_pairs_;
};

}  // namespace be::hardware
