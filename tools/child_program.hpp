#pragma once

#include <array>
#include <string>
#include <vector>

namespace unmetal {

struct EnvironmentVariable {
  const char* name;
  const char* value;
};
/// What main sets before it starts the program a second time, unless a user has set the first of them: OpenMP's idle threads
/// sleep after about twenty microseconds.
inline constexpr std::array<EnvironmentVariable, 2> kIdleThreads{{
    {"OMP_WAIT_POLICY", "passive"},
    {"GOMP_SPINCOUNT", "1000"},
}};

/// What a run of this program in a process of its own gave.
struct ChildOutput {
  std::string text;               ///< standard output
  double secondsToFirstLine = 0;  ///< from before the process was made to the end of its first line
};

/// Starts this program once more, with these arguments, and waits for its end. For measurements that what
/// this process did before would disturb. @throws mps::Error with the child's own words when it fails.
ChildOutput runThisProgram(const std::vector<std::string>& arguments);

}  // namespace unmetal
