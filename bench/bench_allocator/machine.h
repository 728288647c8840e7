// Where and when figures were taken; stands in every report and under every plot.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace be::bench {

struct Machine {
  std::string cpu;  // "AMD EPYC"
  int cores = 0;
  std::string kernel;  // "Linux 6.18.44"
  std::string libc;    // "glibc 2.36"
  std::string date;    // UTC: "2026-11-30 14:05"

  std::string to_string() const;  // "2 cores of AMD EPYC, Linux 6.18.44, glibc 2.36, 2026-... UTC"
};
void to_json(nlohmann::json& json, const Machine& machine);

Machine this_machine();

}  // namespace be::bench
