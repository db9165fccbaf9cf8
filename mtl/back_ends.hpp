#pragma once

#include <memory>
#include <string>
#include <vector>

#include "mtl/device.hpp"

/// The one place that knows which back ends this build has besides the CPU.
namespace mtl {

/// CUDA devices that can be used now; empty without any.
std::vector<std::shared_ptr<Device>> cudaDevices();

/// CUDA device number `index`. @throws Error that says what is missing.
std::shared_ptr<Device> cudaDevice(int index);

/// The device's name; of a newCPUDevice with its number, because they all have the name "cpu".
std::string nameForMessages(const Device& device);

}  // namespace mtl
