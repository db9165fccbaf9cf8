#pragma once

#include <memory>
#include <string>

#include "mtl/device.hpp"

/// The CPU engine. Engine-internal; users call mtl::createSystemDefaultDevice and mtl::newCPUDevice.
namespace mtl::cpu {

/// The process's default device, with defaultThreadCount() threads.
std::shared_ptr<Device> defaultDevice();

/// A device with an executing thread of its own.
std::shared_ptr<Device> newDevice(int threadCount);

/// Of a CPU: "cpu", or "cpu (newCPUDevice 2)" of the second one of the process.
std::string nameForMessages(const Device& device);

}  // namespace mtl::cpu
