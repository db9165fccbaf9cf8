#include "mps/core/kernel.hpp"

#include <cstdlib>

#include "mps/core/error.hpp"

namespace mps {

Kernel::Kernel(std::shared_ptr<mtl::Device> device)
    : device_(std::move(device)),
      options_(std::getenv("MPS_LOG_INFO") != nullptr ? KernelOptions::Verbose : KernelOptions::None) {
  if (!device_) throw Error("Kernel", "device", "null", "a device");
}

std::string Kernel::describe() const {
  return label_.empty() ? className() : className() + " \"" + label_ + "\"";
}

std::shared_ptr<Kernel> Kernel::copy(const std::shared_ptr<mtl::Device>& device) const {
  auto other = clone();
  if (device && device != device_) {
    other->device_ = device;
    other->didMoveToDevice();
  }
  return other;
}

}  // namespace mps
