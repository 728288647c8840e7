// Draws one SVG file with gnuplot (Debian's gnuplot-nox), which a run can do without.
//
// The picture appears whole or not at all. A gnuplot that fails is a Status with its words; the
// text of the script goes to its standard input. One thread.
#pragma once

#include <string>
#include <vector>

#include "be/base/status.h"

namespace be::bench {

bool have_gnuplot();

// `script` comes after the terminal and the output have been set.
Status draw_svg(const std::string& path, int width, int height, const std::string& script);

// Text in gnuplot's single quotes.
std::string quoted(const std::string& text);

// These lines below the plots, small: labels of the next plot.
std::string caption(const std::vector<std::string>& lines);

}  // namespace be::bench
