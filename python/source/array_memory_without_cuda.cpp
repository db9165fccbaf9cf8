#include <stdexcept>

#include "python/source/array_memory.hpp"

namespace python {

namespace nb = nanobind;

std::shared_ptr<mtl::Memory> gpuMemory(const mtl::Device& /*device*/, std::byte* /*address*/,
                                       std::size_t /*length*/, const nb::ndarray<>& /*array*/) {
  throw std::logic_error("a build without CUDA has no device of that kind");
}

}  // namespace python
