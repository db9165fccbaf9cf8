#pragma once

#include <CLI/CLI.hpp>
#include <filesystem>

namespace unmetal {

/// Adds `--config FILE`: a file of options, for those that the command line does not give.
///
///     # Comments and blank lines are passed over.
///     epochs = 20
///     data = "folder:my pictures"
///     quiet = true
///
/// @param path where its name goes
void addConfigOption(CLI::App& command, std::filesystem::path& path);

/// Gives the command the file's options, checked as those of the command line.
/// @throws mps::Error, in one sentence that names the file, for one that cannot be read, sections, an option that the command does
/// not have or more than one value for one; CLI::Error for a value that the option does not take
void takeConfig(CLI::App& command, const std::filesystem::path& path);

}  // namespace unmetal
