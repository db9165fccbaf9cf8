#include "mps/conform/testing/test_kernels_cuda.hpp"
#include "mtl/cuda/launch.cuh"

namespace mps::detail::testing {
namespace {

constexpr std::size_t kSharedBytes = kSharedWords * sizeof(std::int32_t);

__global__ void setKernel(std::int32_t number) {
  extern __shared__ std::int32_t memory[];
  volatile std::int32_t* const stored = memory;
  for (unsigned i = threadIdx.x; i < kSharedWords; i += blockDim.x) stored[i] = number;
}

__global__ void copyKernel(std::int32_t* words) {
  extern __shared__ std::int32_t memory[];
  const volatile std::int32_t* const found = memory;
  for (unsigned i = threadIdx.x; i < kSharedWords; i += blockDim.x)
    words[blockIdx.x * kSharedWords + i] = found[i];
}

}  // namespace

void setSharedMemory(mtl::Stream& stream, unsigned blocks, std::int32_t number) {
  mtl::cuda::launch(stream, setKernel, dim3(blocks), dim3(mtl::cuda::kBlockThreads), kSharedBytes, number);
}

void copyUnsetSharedMemory(mtl::Stream& stream, unsigned blocks, std::int32_t* words) {
  mtl::cuda::launch(stream, copyKernel, dim3(blocks), dim3(mtl::cuda::kBlockThreads), kSharedBytes, words);
}

}  // namespace mps::detail::testing
