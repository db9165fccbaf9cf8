#include "mtl/back_ends.hpp"

#include <string>

#include "mtl/cpu/device.hpp"
#include "mtl/error.hpp"

#if UNMETAL_CUDA

#include "mtl/cuda/device.hpp"

namespace mtl {

std::vector<std::shared_ptr<Device>> cudaDevices() {
  return cuda::devices();
}

std::shared_ptr<Device> cudaDevice(int index) {
  return cuda::device(index);
}

}  // namespace mtl

#else

namespace mtl {

std::vector<std::shared_ptr<Device>> cudaDevices() {
  return {};
}

std::shared_ptr<Device> cudaDevice(int index) {
  throw Error("device cuda:" + std::to_string(index) +
              " cannot be used: this library was built without CUDA");
}

}  // namespace mtl

#endif

namespace mtl {

std::string nameForMessages(const Device& device) {
  return device.kind() == DeviceKind::CPU ? cpu::nameForMessages(device) : device.name();
}

}  // namespace mtl
