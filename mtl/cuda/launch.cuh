#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <tuple>
#include <type_traits>
#include <utility>

#include "mtl/cuda/stream.hpp"

/// What .cu files start kernels with. Engine-internal.
namespace mtl::cuda {

/// Threads of a block where a kernel has no reason for another number.
inline constexpr unsigned kBlockThreads = 256;

/// Blocks so that there is a thread for each of `count` items; at least one. @throws Error above 2^31 - 1.
inline unsigned blocksFor(std::int64_t count, unsigned threads = kBlockThreads) {
  const std::int64_t blocks = count <= 0 ? 1 : (count + threads - 1) / threads;
  if (blocks > 0x7FFFFFFF) throw Error("a CUDA grid of " + std::to_string(blocks) + " blocks is too large");
  return static_cast<unsigned>(blocks);
}

/// What launch() and launchTogether() do.
template <class... Parameters, class... Arguments>
void launchBlocks(bool together, mtl::Stream& stream, void (*kernel)(Parameters...), dim3 grid, dim3 block,
                  std::size_t sharedBytes, Arguments&&... arguments) {
  std::tuple<std::remove_cv_t<Parameters>...> values(std::forward<Arguments>(arguments)...);
  std::apply(
      [&](auto&... value) {
        void* pointers[] = {static_cast<void*>(&value)...};
        asCuda(stream).launch(reinterpret_cast<const void*>(kernel), grid, block, pointers, sharedBytes,
                              together);
      },
      values);
}

/// Starts a kernel on a stream. @throws CudaError when it cannot be started.
template <class... Parameters, class... Arguments>
void launch(mtl::Stream& stream, void (*kernel)(Parameters...), dim3 grid, dim3 block,
            std::size_t sharedBytes, Arguments&&... arguments) {
  launchBlocks(false, stream, kernel, grid, block, sharedBytes, std::forward<Arguments>(arguments)...);
}

/// Starts a kernel whose blocks wait for each other: all of them run at the same time.
/// @param grid of no more blocks than fit, see blocksOfMultiprocessor() @throws CudaError when it cannot be started.
template <class... Parameters, class... Arguments>
void launchTogether(mtl::Stream& stream, void (*kernel)(Parameters...), dim3 grid, dim3 block,
                    std::size_t sharedBytes, Arguments&&... arguments) {
  launchBlocks(true, stream, kernel, grid, block, sharedBytes, std::forward<Arguments>(arguments)...);
}

/// A number that describes the current device, such as its multiprocessors. @throws CudaError
inline int attributeOfDevice(cudaDeviceAttr which) {
  int device = 0;
  int value = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  check(cudaDeviceGetAttribute(&value, which, device), "cudaDeviceGetAttribute");
  return value;
}

/// How many blocks of a kernel each multiprocessor of the current device has room for. @throws CudaError
template <class... Parameters>
int blocksOfMultiprocessor(void (*kernel)(Parameters...), unsigned threads, std::size_t sharedBytes) {
  int blocks = 0;
  check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, reinterpret_cast<const void*>(kernel),
                                                      static_cast<int>(threads), sharedBytes),
        "cudaOccupancyMaxActiveBlocksPerMultiprocessor");
  return blocks;
}

}  // namespace mtl::cuda
