#pragma once

#include <memory>
#include <vector>

#include "mtl/device.hpp"

/// The one place that knows which back ends this build has besides the CPU.
namespace mtl {

/// CUDA devices that can be used now; empty without any.
std::vector<std::shared_ptr<Device>> cudaDevices();

/// CUDA device number `index`. @throws Error that says what is missing.
std::shared_ptr<Device> cudaDevice(int index);

}  // namespace mtl
