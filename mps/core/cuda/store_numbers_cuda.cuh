#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "mtl/cuda/launch.cuh"

/// Small arrays of the host that kernels read, such as PReLU's slopes.
namespace mps::detail::cuda {

/// Numbers as an argument of a launch.
struct NumbersPart {
  static constexpr std::size_t most = 960;
  float values[most];
};

static __global__ void storePart(const __grid_constant__ NumbersPart part, unsigned count, float* to) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) to[i] = part.values[i];
}

/// Puts numbers into device memory. The host's may go away at once, and captured graphs keep a copy: neither
/// holds for a copy from host memory.
inline void storeNumbers(mtl::Stream& stream, std::span<const float> numbers, float* to) {
  while (!numbers.empty()) {
    const auto values = numbers.first(std::min(numbers.size(), NumbersPart::most));
    NumbersPart part;
    std::copy(values.begin(), values.end(), part.values);
    mtl::cuda::launch(stream, storePart, dim3(mtl::cuda::blocksFor(static_cast<std::int64_t>(values.size()))),
                      dim3(mtl::cuda::kBlockThreads), 0, part, static_cast<unsigned>(values.size()), to);
    numbers = numbers.subspan(values.size());
    to += values.size();
  }
}

}  // namespace mps::detail::cuda
