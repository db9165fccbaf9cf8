#include "mps/conform/run_on_device.hpp"

#include <chrono>
#include <utility>

#include "mtl/command_buffer.hpp"
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
  const auto start = std::chrono::steady_clock::now();
  commandBuffer->commit();
  commandBuffer->throwIfFailed();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace mps::detail
