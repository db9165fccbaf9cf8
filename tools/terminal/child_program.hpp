#pragma once

#include <string>
#include <vector>

namespace unmetal {

/// What a run of this program in a process of its own gave.
struct ChildOutput {
  std::string text;               ///< standard output
  double secondsToFirstLine = 0;  ///< from before the process was made to the end of its first line
};

/// Starts this program once more, with these arguments, and waits for its end. For measurements that what
/// this process did before would disturb. @throws mps::Error with the child's own words when it fails.
ChildOutput runThisProgram(const std::vector<std::string>& arguments);

}  // namespace unmetal
