#include <CLI/CLI.hpp>
#include <iomanip>
#include <iostream>

#include "mtl/device.hpp"
#include "tools/commands.hpp"

namespace unmetal {
namespace {

void printDevice(const mtl::Device& device) {
  constexpr double gibibyte = 1U << 30U;
  std::cout << std::left << std::setw(8) << device.name() << "  " << device.description() << ", "
            << device.threadCount() << (device.threadCount() == 1 ? " thread, " : " threads, ") << std::fixed
            << std::setprecision(1) << static_cast<double>(device.recommendedMaxWorkingSetSize()) / gibibyte
            << " GiB\n";
}

}  // namespace

void addDevicesCommand(CLI::App& program) {
  program.add_subcommand("devices", "List the devices of this machine that this build can use")->callback([] {
    for (const auto& device : mtl::copyAllDevices()) printDevice(*device);
  });
}

}  // namespace unmetal
