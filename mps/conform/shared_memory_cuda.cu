#include <cstdint>

#include "mps/conform/shared_memory.hpp"
#include "mtl/cuda/launch.cuh"

namespace mps::detail {
namespace {

using mtl::cuda::check;

__global__ void poisonKernel(std::int32_t words) {
  extern __shared__ std::int32_t memory[];
  volatile std::int32_t* const stored = memory;  // nobody reads it here
  for (std::int32_t i = static_cast<std::int32_t>(threadIdx.x); i < words;
       i += static_cast<std::int32_t>(blockDim.x))
    stored[i] = -1;
}

int attribute(cudaDeviceAttr which, int device) {
  int value = 0;
  check(cudaDeviceGetAttribute(&value, which, device), "cudaDeviceGetAttribute");
  return value;
}

}  // namespace

void poisonSharedMemory(mtl::Stream& stream) {
  int device = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  const int bytes = attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  check(cudaFuncSetAttribute(poisonKernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
        "cudaFuncSetAttribute");
  // A block fills a multiprocessor; a few for each, so that none is left out.
  const auto blocks = static_cast<unsigned>(4 * attribute(cudaDevAttrMultiProcessorCount, device));
  mtl::cuda::launch(stream, poisonKernel, dim3(blocks), dim3(mtl::cuda::kBlockThreads),
                    static_cast<std::size_t>(bytes), bytes / static_cast<int>(sizeof(std::int32_t)));
}

}  // namespace mps::detail
