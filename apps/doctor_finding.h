// What `byteexpress doctor` says of one thing: how it stands and, if it is not well, what mends it.
//
// Plain values and pure functions.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace be::apps::doctor {

enum class Verdict : uint8_t {
  kOk,
  kWarning,  // works, but not as well or not as surely as it could
  kMissing,  // stands between this machine and RDMA
  kSkipped,  // cannot be told here, or does not matter here
};
std::string_view verdict_name(Verdict verdict);  // "ok", "warning", "missing", "skipped"

struct Finding {
  std::string subject;  // "kernel", "mlx5_0 port 1"
  Verdict verdict = Verdict::kOk;
  std::string text;
  std::string remedy{};  // a command, or where one has to look; empty: nothing to mend
};

// A line for each, its remedy on the next one behind "->".
std::string to_text(const std::vector<Finding>& findings);
nlohmann::ordered_json to_json(const std::vector<Finding>& findings);

}  // namespace be::apps::doctor
