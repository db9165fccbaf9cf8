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
/// streams. In a build without CUDA nobody calls it, nor the next one.
std::shared_ptr<mtl::Memory> gpuMemory(const mtl::Device& device, std::byte* address, std::size_t length,
                                       const nanobind::ndarray<>& array);

/// For memory of the library's on a GPU that others are about to use. Waits until what was given to the GPU before has
/// run, first zeros and copies from the host too: others have their own streams, and so need not wait for the library's.
/// @return keeps `owner` alive, and waits for the GPU once more before it lets it go: what others gave the GPU on the
/// memory may still run then, and the library gives memory to the next object at once
nanobind::object lentGpuMemory(const mtl::Device& device, nanobind::handle owner);

}  // namespace python
