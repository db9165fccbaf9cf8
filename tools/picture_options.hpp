#pragma once

#include <CLI/CLI.hpp>

#include "tools/data.hpp"

namespace unmetal {

/// The options --picture-size and --skip-bad of folders of pictures.
void addPictureOptions(CLI::App& command, DataOptions& options);

}  // namespace unmetal
