#include <stdexcept>

#include "python/source/arrays/array_memory.hpp"

namespace python {

namespace nb = nanobind;

namespace {

constexpr const char* none = "a build without CUDA has no device of that kind";

}  // namespace

std::shared_ptr<mtl::Memory> gpuMemory(const mtl::Device& /*device*/, std::byte* /*address*/,
                                       std::size_t /*length*/, const nb::ndarray<>& /*array*/) {
  throw std::logic_error(none);
}

nb::object lentGpuMemory(const mtl::Device& /*device*/, nb::handle /*owner*/) {
  throw std::logic_error(none);
}

}  // namespace python
