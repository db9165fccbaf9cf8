#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

namespace mtl {
class Device;
}

namespace unmetal {

/// Adds `--implementation NAME`.
void addImplementationOption(CLI::App& command, std::string& name, const std::string& description);

/// @throws mps::Error with the names that there are, where the device has no implementation of this one
void checkImplementation(const std::shared_ptr<mtl::Device>& device, const std::string& name);

}  // namespace unmetal
