#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "tools/data/data.hpp"

namespace unmetal {

/// Takes the names of networks, see checkNetworkName().
CLI::Validator networkName();

/// The option --net, which names a network of networks.hpp, e.g. "resnet18" or "resnet18:16".
CLI::Option* addNetworkOption(CLI::App& command, std::string& network);

/// The option --picture-size of what a network sees, see parsePictureSize().
CLI::Option* addPictureSizeOption(CLI::App& command, train::Shape& size);

}  // namespace unmetal
