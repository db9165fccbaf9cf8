#pragma once

#include <CLI/CLI.hpp>

#include "tools/training/checkpoint.hpp"

namespace unmetal {

/// Gives each option of `unmetal train` that was not given the value with which the checkpoint's training was started, so that
/// --resume needs no other option. @throws CLI::ValidationError for a value that the option would not take
void takeSettings(CLI::App& command, const CheckpointFile& file);

}  // namespace unmetal
