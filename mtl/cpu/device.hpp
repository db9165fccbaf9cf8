#pragma once

#include <memory>

#include "mtl/device.hpp"

/// The CPU engine. Engine-internal; users call mtl::createSystemDefaultDevice and mtl::newCPUDevice.
namespace mtl::cpu {

/// The process's default device, with defaultThreadCount() threads.
std::shared_ptr<Device> defaultDevice();

/// A device with an executing thread of its own.
std::shared_ptr<Device> newDevice(int threadCount);

}  // namespace mtl::cpu
