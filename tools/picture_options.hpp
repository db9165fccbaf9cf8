#pragma once

#include <CLI/CLI.hpp>

#include "tools/data/dataset.hpp"

namespace unmetal {

/// The options --picture-size and --skip-bad of folders of pictures.
void addPictureOptions(CLI::App& command, PictureFolderOptions& options);

}  // namespace unmetal
