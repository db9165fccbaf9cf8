#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace unmetal {

/// The option --net, which names a network of networks.hpp, e.g. "resnet18" or "resnet18:16".
CLI::Option* addNetworkOption(CLI::App& command, std::string& network);

}  // namespace unmetal
