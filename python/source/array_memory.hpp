#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstddef>
#include <memory>

#include "mtl/device.hpp"
#include "mtl/memory.hpp"

namespace python {

/// Memory of an array of the host's, which it keeps alive.
std::shared_ptr<mtl::Memory> hostMemory(std::byte* address, std::size_t length,
                                        const nanobind::ndarray<>& array);

/// Memory of an array on a GPU. Waits until what was given to the GPU before has run: whoever made the array has its own
/// streams. In a build without CUDA nobody calls it.
std::shared_ptr<mtl::Memory> gpuMemory(const mtl::Device& device, std::byte* address, std::size_t length,
                                       const nanobind::ndarray<>& array);

}  // namespace python
