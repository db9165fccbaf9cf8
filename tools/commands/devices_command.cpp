#include <CLI/CLI.hpp>
#include <iomanip>
#include <iostream>
#include <string>

#include "mps/core/types/text_stream.hpp"
#include "mps/distributed/communicator.hpp"
#include "mtl/device.hpp"
#include "mtl/error.hpp"
#include "tools/commands/commands.hpp"

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

/// Of several ranks.
void printEngine(const char* ranks, mps::CommunicatorEngine engine) {
  std::string found;
  try {
    found = mps::Communicator::describeLibrary(engine);
  } catch (const mtl::Error& error) {
    found = error.what();
  }
  std::cout << ranks << ": " << found << "\n";
}

}  // namespace

void addDevicesCommand(CLI::App& program) {
  program
      .add_subcommand(
          "devices",
          "List the devices of this machine that this build can use, and what joins several of them")
      ->callback([] {
        const auto devices = mtl::copyAllDevices();
        for (const auto& device : devices) printDevice(*device);
        if (devices.size() == 1) {
          try {
            mtl::deviceNamed("cuda");
          } catch (const mtl::Error& error) {
            std::cout << error.what() << "\n";
          }
        }
        printEngine("ranks on CPUs", mps::CommunicatorEngine::Mpi);
        printEngine("ranks on GPUs", mps::CommunicatorEngine::Nccl);
      });
}

}  // namespace unmetal
