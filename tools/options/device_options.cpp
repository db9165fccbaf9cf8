#include "tools/options/device_options.hpp"

#include <CLI/CLI.hpp>
#include <iostream>
#include <string>
#include <vector>

#include "mps/convolution/convolution_plan_file.hpp"
#include "mps/core/types/error.hpp"
#include "mtl/device.hpp"
#include "tools/options/number_options.hpp"

namespace unmetal {

void addDeviceOptions(CLI::App& command, DeviceOptions& options) {
  command.add_option("--device", options.name, "Where to compute: cpu, cuda or cuda:N")
      ->type_name("NAME")
      ->capture_default_str();
  command.add_option("--threads", options.threads, "Threads that share a kernel on the CPU [all processors]")
      ->type_name("N")
      ->check(wholeNumber(1, 1024));
  command
      .add_option(
          "--plans", options.plans,
          "Convolutions on a GPU as unmetal tune measured them, rather than the library's first choice")
      ->type_name("FILE")
      ->check(nameOf("a file"));
}

std::shared_ptr<mtl::Device> openDevice(const DeviceOptions& options, bool tells) {
  std::shared_ptr<mtl::Device> device;
  try {
    device = mtl::deviceNamed(options.name);
  } catch (const mtl::Error& error) {
    throw mps::Error("--device " + options.name + ": " + error.what());
  }
  for (const std::string& sentence : tells ? device->missingLibraries() : std::vector<std::string>())
    std::cerr << "unmetal: --device " << options.name << ": " << sentence
              << "; kernels of our own take its place, more slowly\n";
  try {
    if (options.threads > 0) device->setThreadCount(options.threads);
  } catch (const mtl::Error& error) {
    throw mps::Error("--threads " + std::to_string(options.threads) + ": " + error.what());
  }
  if (options.plans.empty()) return device;
  if (device->kind() == mtl::DeviceKind::CPU)
    throw mps::Error("--plans " + options.plans + ": plans are for GPUs, --device is " + device->name());
  mps::detail::useConvolutionPlans(options.plans);
  return device;
}

std::string plansOf(const mtl::Device& device) {
  if (device.kind() == mtl::DeviceKind::CPU) return "none";
  const auto plans = mps::detail::convolutionPlansInUse();
  return plans ? plans->title() : "none";
}

}  // namespace unmetal
