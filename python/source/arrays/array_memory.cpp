#include "python/source/arrays/array_memory.hpp"

#include "python/source/binding/interpreter.hpp"

namespace python {
namespace {

namespace nb = nanobind;

class HostMemory final : public mtl::Memory {
 public:
  HostMemory(std::byte* address, std::size_t length, const nb::ndarray<>& array)
      : Memory(address, length), array_(heldForLibrary(array)) {}

 private:
  std::shared_ptr<nb::ndarray<>> array_;
};

}  // namespace

std::shared_ptr<mtl::Memory> hostMemory(std::byte* address, std::size_t length, const nb::ndarray<>& array) {
  return std::make_shared<HostMemory>(address, length, array);
}

}  // namespace python
