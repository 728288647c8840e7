// Figure 4 a-d: rate and peak memory over threads, LARGE and SMALL, as one SVG of four plots.
#pragma once

#include <string>
#include <vector>

#include "bench/bench_allocator/cells.h"

namespace be::bench {

// `notes` stand below: command, machine.
Status draw_figure4(const std::string& path, const Matrix& matrix, const Contenders& contenders,
                    const std::vector<std::string>& notes);

}  // namespace be::bench
