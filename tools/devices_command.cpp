#include <CLI/CLI.hpp>
#include <iomanip>
#include <iostream>
#include <string>

#include "mps/core/text_stream.hpp"
#include "mtl/device.hpp"
#include "mtl/error.hpp"
#include "tools/commands.hpp"

namespace unmetal {
namespace {

void printDevice(const mtl::Device& device) {
  constexpr double gibibyte = 1U << 30U;
  mps::detail::TextStream line;
  line << std::left << std::setw(8) << device.name() << "  " << device.description() << ", ";
  if (device.kind() == mtl::DeviceKind::CPU)
    line << device.threadCount() << (device.threadCount() == 1 ? " thread, " : " threads, ");
  line << std::fixed << std::setprecision(1)
       << static_cast<double>(device.recommendedMaxWorkingSetSize()) / gibibyte << " GiB\n";
  std::cout << line.str();
  for (const std::string& sentence : device.missingLibraries()) std::cout << "          " << sentence << "\n";
}

}  // namespace

void addDevicesCommand(CLI::App& program) {
  program.add_subcommand("devices", "List the devices of this machine that this build can use")->callback([] {
    const auto devices = mtl::copyAllDevices();
    for (const auto& device : devices) printDevice(*device);
    if (devices.size() > 1) return;
    try {
      mtl::deviceNamed("cuda");
    } catch (const mtl::Error& error) {
      std::cout << error.what() << "\n";
    }
  });
}

}  // namespace unmetal
