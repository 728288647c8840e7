// Commands of the guest's root: ip, tc.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

namespace be::rxe {

inline void shell(const std::string& line) { EXPECT_EQ(std::system(line.c_str()), 0) << line; }

}  // namespace be::rxe
