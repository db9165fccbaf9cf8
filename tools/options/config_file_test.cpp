#include "tools/options/config_file.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "mps/core/types/error.hpp"
#include "mps/weights/test_folder.hpp"
#include "tools/options/number_options.hpp"

namespace unmetal::config_file_test {
namespace {

using mps::detail::errorOf;
using mps::detail::TestFolder;
using mps::detail::writeText;

class ConfigFile : public ::testing::Test {
 protected:
  ConfigFile() {
    command_.add_option("--epochs", epochs_)->check(wholeNumber(1));
    command_.add_option("--data", data_);
    command_.add_flag("--quiet", quiet_);
    addConfigOption(command_, config_);
  }

  void parse(const std::string& content, std::vector<std::string> arguments = {}) {
    const auto path = folder_.path() / "options.toml";
    writeText(path, content);
    command_.parse(std::move(arguments));
    takeConfig(command_, path);
  }
  std::string refusal(const std::string& content) {
    return errorOf<mps::Error>([&] { parse(content); });
  }

  TestFolder folder_;
  CLI::App program_;
  CLI::App& command_ = *program_.add_subcommand("train", "");
  std::uint64_t epochs_ = 5;
  std::string data_ = "none";
  bool quiet_ = false;
  std::filesystem::path config_;
};

TEST_F(ConfigFile, GivesOptionsAndFlags) {
  parse("# a comment\n\nepochs = 20\ndata = \"folder:my pictures\"\nquiet = true\n");
  EXPECT_EQ(epochs_, 20U);
  EXPECT_EQ(data_, "folder:my pictures");
  EXPECT_TRUE(quiet_);
}

TEST_F(ConfigFile, TheCommandLineGoesBeforeIt) {
  parse("epochs = 20\ndata = a\n", {"7", "--epochs"});  // CLI11 takes them from the back
  EXPECT_EQ(epochs_, 7U);
  EXPECT_EQ(data_, "a");
}

TEST_F(ConfigFile, WhatTheCommandDoesNotHaveIsNamed) {
  const std::string unknown = refusal("epoch = 3\n");
  EXPECT_NE(unknown.find("options.toml: train has no option epoch; did you mean epochs?"), std::string::npos)
      << unknown;
  EXPECT_NE(refusal("help = true\n").find("no option help"), std::string::npos);
  EXPECT_NE(refusal("some words\n").find("no option"), std::string::npos);
  EXPECT_NE(refusal("[train]\nepochs = 3\n").find("section [train]"), std::string::npos);
  for (const char* twice :
       {"epochs = 3\nepochs = 4\n", "epochs = 3\ndata = a\nepochs = 4\n", "epochs = [3, 4]\n"})
    EXPECT_NE(refusal(twice).find("more than one value for epochs"), std::string::npos) << twice;
}

TEST_F(ConfigFile, ValuesAreCheckedAsThoseOfTheCommandLine) {
  EXPECT_THROW(parse("epochs = 0\n"), CLI::ValidationError);
  EXPECT_THROW(parse("epochs = many\n"), CLI::Error);
}

TEST_F(ConfigFile, AFileThatCannotBeReadIsNamed) {
  const std::string sentence =
      errorOf<mps::Error>([&] { takeConfig(command_, folder_.path() / "none.toml"); });
  EXPECT_NE(sentence.find("none.toml"), std::string::npos) << sentence;
}

}  // namespace
}  // namespace unmetal::config_file_test
