#include "tools/device_options.hpp"

#include <CLI/CLI.hpp>

#include "mps/core/error.hpp"
#include "mtl/device.hpp"
#include "tools/number_options.hpp"

namespace unmetal {

void addDeviceOptions(CLI::App& command, DeviceOptions& options) {
  command.add_option("--device", options.name, "Where to compute: cpu, cuda or cuda:N")
      ->type_name("NAME")
      ->capture_default_str();
  command.add_option("--threads", options.threads, "Threads that share a kernel on the CPU [all processors]")
      ->type_name("N")
      ->check(wholeNumber(1, 1024));
}

std::shared_ptr<mtl::Device> openDevice(const DeviceOptions& options) {
  std::shared_ptr<mtl::Device> device;
  try {
    device = mtl::deviceNamed(options.name);
  } catch (const mtl::Error& error) {
    throw mps::Error("--device " + options.name + ": " + error.what());
  }
  try {
    if (options.threads > 0) device->setThreadCount(options.threads);
  } catch (const mtl::Error& error) {
    throw mps::Error("--threads " + std::to_string(options.threads) + ": " + error.what());
  }
  return device;
}

}  // namespace unmetal
