#pragma once

#include <memory>
#include <string>
#include <vector>

#include "mtl/device.hpp"

/// The CUDA engine. Engine-internal; users call mtl::deviceNamed and mtl::copyAllDevices.
namespace mtl::cuda {

/// Every device that the driver shows and that is not too old; empty where there is no driver or no device.
std::vector<std::shared_ptr<Device>> devices();

/// One of them, numbered as the driver does; the same object each time. @throws Error in one sentence that says what is
/// missing.
std::shared_ptr<Device> device(int index);

/// Why a device of that compute capability is refused (docs/decisions.md, D12); empty when it is not.
std::string whyTooOld(int major, int minor);

}  // namespace mtl::cuda
