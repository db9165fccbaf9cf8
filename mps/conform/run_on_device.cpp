#include "mps/conform/run_on_device.hpp"

#include <utility>

#include "mtl/command.hpp"
#include "mtl/command_queue.hpp"
#include "mtl/device.hpp"

namespace mps::detail {

double runOnDevice(const std::shared_ptr<mtl::Device>& device, const std::string& label,
                   const std::function<void(mtl::Stream&)>& work, int repetitions) {
  const auto commandBuffer = device->newCommandQueue()->commandBuffer();
  for (int i = 0; i < repetitions; ++i) {
    mtl::Command command;
    command.label = label;
    command.run = work;
    commandBuffer->append(std::move(command));
  }
  commandBuffer->commit();
  commandBuffer->throwIfFailed();
  return (commandBuffer->GPUEndTime() - commandBuffer->GPUStartTime()) * 1e3;
}

}  // namespace mps::detail
