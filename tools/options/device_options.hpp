#pragma once

#include <memory>
#include <string>

namespace CLI {  // NOLINT: the library's name
class App;
}
namespace mtl {
class Device;
}

namespace unmetal {

/// What commands that compute ask for.
struct DeviceOptions {
  std::string name = "cpu";
  int threads = 0;    ///< 0: as many as the device likes
  std::string plans;  ///< file of `unmetal tune`, or empty
};

/// Adds --device, --threads and --plans.
void addDeviceOptions(CLI::App& command, DeviceOptions& options);

/// @throws mps::Error that names the option and the trouble.
/// @param tells whether it prints which libraries are missing
std::shared_ptr<mtl::Device> openDevice(const DeviceOptions& options, bool tells = true);

/// The plan file that convolutions on a device follow, by its title, or "none".
std::string plansOf(const mtl::Device& device);

}  // namespace unmetal
