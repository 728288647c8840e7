#include "apps/doctor_finding.h"

#include <fmt/format.h>

#include <algorithm>

namespace be::apps::doctor {

std::string_view verdict_name(Verdict verdict) {
  switch (verdict) {
    case Verdict::kOk:
      return "ok";
    case Verdict::kWarning:
      return "warning";
    case Verdict::kMissing:
      return "missing";
    case Verdict::kSkipped:
      return "skipped";
  }
  return "unknown verdict";
}

std::string to_text(const std::vector<Finding>& findings) {
  size_t width = 0;
  for (const Finding& finding : findings) width = std::max(width, finding.subject.size());
  std::string text;
  for (const Finding& finding : findings) {
    text += fmt::format("{:<{}}  {:<7}  {}\n", finding.subject, width,
                        verdict_name(finding.verdict), finding.text);
    if (!finding.remedy.empty()) {
      text += fmt::format("{:<{}}           -> {}\n", "", width, finding.remedy);
    }
  }
  return text;
}

nlohmann::ordered_json to_json(const std::vector<Finding>& findings) {
  auto json = nlohmann::ordered_json::array();
  for (const Finding& finding : findings) {
    json.push_back({{"subject", finding.subject},
                    {"verdict", verdict_name(finding.verdict)},
                    {"text", finding.text},
                    {"remedy", finding.remedy}});
  }
  return json;
}

}  // namespace be::apps::doctor
