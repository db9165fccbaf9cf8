#pragma once

#include <functional>
#include <memory>
#include <string>

namespace mtl {
class Device;
class Stream;
}  // namespace mtl

namespace mps::detail {

/// Runs `work` as the only command of a command buffer and waits for it. @throws mtl::Error when it failed.
/// @param repetitions how many times it is recorded
/// @return milliseconds that the device was at work
double runOnDevice(const std::shared_ptr<mtl::Device>& device, const std::string& label,
                   const std::function<void(mtl::Stream&)>& work, int repetitions = 1);

}  // namespace mps::detail
