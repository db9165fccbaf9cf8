#include "mtl/cuda/test_kernels.hpp"

#include "mtl/cuda/launch.cuh"

namespace mtl::cuda::testing {
namespace {

__global__ void addKernel(std::int32_t* values, std::int64_t count, std::int32_t number) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < count) values[i] += number;
}

__global__ void addTogetherKernel(std::int32_t* values, std::int32_t number) {
  const auto blocks = static_cast<std::int32_t>(gridDim.x);
  const std::int32_t all = (atomicAdd(values, 1) / blocks + 1) * blocks;
  while (*static_cast<volatile std::int32_t*>(values) < all) {
  }
  values[1 + blockIdx.x] += number;
}

__global__ void spinKernel(long long cycles) {
  const long long start = clock64();
  while (clock64() - start < cycles) {
  }
}

__global__ void faultKernel(std::int32_t* address) {
  *address = 1;
}

}  // namespace

void add(mtl::Stream& stream, std::int32_t* values, std::int64_t count, std::int32_t number) {
  launch(stream, addKernel, dim3(blocksFor(count)), dim3(kBlockThreads), 0, values, count, number);
}

void addTogether(mtl::Stream& stream, std::int32_t* values, unsigned count, std::int32_t number) {
  launchTogether(stream, addTogetherKernel, dim3(count), dim3(1), 0, values, number);
}

void spin(mtl::Stream& stream, int milliseconds) {
  launch(stream, spinKernel, dim3(1), dim3(1), 0, milliseconds * 1'500'000LL);
}

void writeToNowhere(mtl::Stream& stream) {
  launch(stream, faultKernel, dim3(1), dim3(1), 0, reinterpret_cast<std::int32_t*>(256));
}

}  // namespace mtl::cuda::testing
