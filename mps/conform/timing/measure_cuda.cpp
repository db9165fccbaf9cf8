#include "mps/conform/timing/measure.hpp"
#include "mtl/cuda/stream.hpp"

namespace mps::detail {

void copyOnCuda(mtl::Stream& stream, std::byte* to, const std::byte* from, std::size_t bytes) {
  mtl::cuda::check(
      cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, mtl::cuda::asCuda(stream).handle()),
      "cudaMemcpyAsync");
}

}  // namespace mps::detail
