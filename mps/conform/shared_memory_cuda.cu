#include <cstddef>

#include "mps/conform/shared_memory.hpp"
#include "mtl/cuda/launch.cuh"

namespace mps::detail {
namespace {

using mtl::cuda::attributeOfDevice;
using mtl::cuda::check;

constexpr int kThreads = 1024;

__global__ void poisonKernel(int words) {
  extern __shared__ int memory[];
  volatile int* const stored = memory;  // nobody reads it here
  for (int i = static_cast<int>(threadIdx.x); i < words; i += kThreads) stored[i] = -1;
}

}  // namespace

void poisonSharedMemory(mtl::Stream& stream) {
  const int bytes = attributeOfDevice(cudaDevAttrMaxSharedMemoryPerBlockOptin);
  check(cudaFuncSetAttribute(poisonKernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
        "cudaFuncSetAttribute");
  // A block fills a multiprocessor; two for each, so that none is left out.
  const auto blocks = static_cast<unsigned>(2 * attributeOfDevice(cudaDevAttrMultiProcessorCount));
  mtl::cuda::launch(stream, poisonKernel, dim3(blocks), dim3(kThreads), static_cast<std::size_t>(bytes),
                    bytes / static_cast<int>(sizeof(int)));
}

}  // namespace mps::detail
