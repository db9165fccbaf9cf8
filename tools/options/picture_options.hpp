#pragma once

#include <CLI/CLI.hpp>
#include <optional>

#include "tools/data/data.hpp"

namespace unmetal {

/// The options --picture-size and --skip-bad of folders of pictures.
void addPictureOptions(CLI::App& command, DataOptions& options);
/// The options --loader-threads and --memory-budget.
void addLoadingOptions(CLI::App& command, DataOptions& options);
/// The option --augment. @param wanted unset: it was not given
void addAugmentOption(CLI::App& command, std::optional<train::Augmentation>& wanted);

}  // namespace unmetal
