#include "tools/commands/manual.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <string>

#include "mps/core/types/error.hpp"
#include "mps/weights/test_folder.hpp"
#include "tools/options/number_options.hpp"

namespace unmetal::manual_test {
namespace {

using mps::detail::errorOf;
using ::testing::HasSubstr;
using ::testing::Not;

class Manual : public ::testing::Test {
 protected:
  Manual() {
    program_.require_subcommand(1);
    auto* paint = program_.add_subcommand("paint", "Paint a picture");
    paint->add_option("-c,--color", color_, "Its [main] color: don't guess")->check(oneOf({"red", "blue"}));
    paint->add_option("--out", out_, ".png or .svg, c:\\pictures")->default_str("a-b.png");
    paint->add_flag("--fast", isFast_, "Paint quickly");
    paint->add_option("file", out_, "The canvas");
    program_.add_subcommand("hidden", "Nobody sees it")->group("");
  }

  CLI::App program_{"Paints and draws.", "painter"};
  std::string color_;
  std::string out_;
  bool isFast_ = false;
};

TEST_F(Manual, CompletionKnowsCommandsOptionsAndTheirWords) {
  const std::string bash = completionScript(program_, "bash");
  EXPECT_THAT(bash, HasSubstr("compgen -W 'paint --help --version'"));
  EXPECT_THAT(bash, HasSubstr("paint:-c|paint:--color) COMPREPLY=($(compgen -W 'red blue' -- "));
  EXPECT_THAT(bash, HasSubstr("paint:--out) COMPREPLY=($(compgen -f -- "));
  EXPECT_THAT(bash, Not(HasSubstr("paint:--fast)"))) << "nothing follows a flag";
  const std::string zsh = completionScript(program_, "zsh");
  EXPECT_THAT(zsh, HasSubstr("'--color[Its \\[main\\] color\\: don'\\''t guess]:value:(red blue)'"));
  EXPECT_THAT(zsh, HasSubstr("'--fast[Paint quickly]'"));
  const std::string fish = completionScript(program_, "fish");
  EXPECT_THAT(fish, HasSubstr("'__fish_seen_subcommand_from paint' -s c -l color -r -f -a 'red blue' -d "
                              "'Its [main] color: don'\\''t guess'"));
  for (const std::string& script : {bash, zsh, fish}) EXPECT_THAT(script, Not(HasSubstr("hidden")));
  EXPECT_NE(errorOf<mps::Error>([&] { completionScript(program_, "csh"); }).find("bash, zsh or fish"),
            std::string::npos);
}

TEST_F(Manual, PagesNameEachOptionAndAreNoRequestsByChance) {
  const std::string page = manualPage(program_, program_.get_subcommand("paint"), "1.2.3");
  EXPECT_TRUE(page.starts_with(".TH UNMETAL-PAINT 1 \"\" \"unmetal 1.2.3\" \"unmetal\"\n.SH NAME\n")) << page;
  for (const char* words : {"\\fB\\-c, \\-\\-color\\fR", "\\fB\\-\\-fast\\fR\n", "\\fBfile\\fR",
                            "\\&.png or .svg, c:\\epictures. Default: a\\-b.png.\n"})
    EXPECT_THAT(page, HasSubstr(words));
  std::istringstream lines(page);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with('.')) continue;
    EXPECT_TRUE(line.starts_with(".TH") || line.starts_with(".SH") || line == ".TP" ||
                line.starts_with(".B "))
        << line;
  }
  const std::string whole = manualPage(program_, nullptr, "1.2.3");
  EXPECT_THAT(whole,
              HasSubstr(".SH COMMANDS\n.TP\n\\fBpaint\\fR\nPaint a picture; see unmetal\\-paint(1)\n"));
  EXPECT_THAT(whole, Not(HasSubstr("hidden")));
}

}  // namespace
}  // namespace unmetal::manual_test
