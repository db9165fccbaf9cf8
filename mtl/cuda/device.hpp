#pragma once

#include <memory>
#include <vector>

#include "mtl/device.hpp"

/// The CUDA engine. Engine-internal; users call mtl::deviceNamed and mtl::copyAllDevices.
namespace mtl::cuda {

/// Every device that the driver shows; empty where there is no driver or no device.
std::vector<std::shared_ptr<Device>> devices();

/// One of them; the same object each time. @throws Error in one sentence that says what is missing.
std::shared_ptr<Device> device(int index);

}  // namespace mtl::cuda
