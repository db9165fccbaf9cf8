#include "tools/commands/help.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>
#include <string>

#include "tools/commands/program.hpp"

namespace unmetal::help_test {
namespace {

std::string helpWith(const char* columns, std::vector<const char*> arguments) {
  setenv("COLUMNS", columns, 1);
  arguments.insert(arguments.begin(), "unmetal");
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(runProgram(static_cast<int>(arguments.size()), arguments.data()), 0);
  unsetenv("COLUMNS");
  return ::testing::internal::GetCapturedStdout();
}

std::size_t longestLine(const std::string& text) {
  std::size_t longest = 0;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) longest = std::max(longest, line.size());
  return longest;
}

/// Without what breaks lines.
std::string words(const std::string& text) {
  return wrapped(text, text.size(), 0, 0);
}

TEST(Help, TextsAreWrappedBetweenWords) {
  EXPECT_EQ(wrapped("one two three", 7, 2, 0), "one two\n  three");
  EXPECT_EQ(wrapped("one two three", 7, 2, 4), "one\n  two\n  three");
  EXPECT_EQ(wrapped("a much-too-long-word b", 5, 0, 0), "a\nmuch-too-long-word\nb");
  EXPECT_EQ(wrapped("", 5, 2, 0), "");
}

TEST(Help, LinesAreNotLongerThanTheTerminalIsWide) {
  for (const char* command :
       {"train", "eval", "predict", "export", "devices", "conform", "check-gradients", "bench", "tune"}) {
    const std::string wide = helpWith("400", {command, "--help"});
    for (const std::size_t columns : {60U, 80U, 120U}) {
      const std::string help = helpWith(std::to_string(columns).c_str(), {command, "--help"});
      EXPECT_LE(longestLine(help), columns) << help;
      EXPECT_EQ(words(help), words(wide));
    }
  }
  EXPECT_LE(longestLine(helpWith("50", {"--help"})), 50U);
  EXPECT_LE(longestLine(helpWith("no number", {"train", "--help"})), 80U)
      << "where nobody says how wide it is";
}

TEST(Help, OfACommandIsWhatItsOptionPrints) {
  EXPECT_EQ(helpWith("80", {"help", "train"}), helpWith("80", {"train", "--help"}));
  EXPECT_EQ(helpWith("80", {"help"}), helpWith("80", {"--help"}));
}

}  // namespace
}  // namespace unmetal::help_test
