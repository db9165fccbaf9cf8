#include "mtl/cuda/stream.hpp"

namespace mtl::cuda {

Stream::Stream() {
  check(cudaStreamCreateWithFlags(&handle_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
}

Stream::~Stream() {
  cudaStreamDestroy(handle_);
}

void Stream::read(const std::byte* address, std::span<std::byte> bytes) {
  check(cudaMemcpyAsync(bytes.data(), address, bytes.size(), cudaMemcpyDeviceToHost, handle_),
        "cudaMemcpyAsync");
  check(cudaStreamSynchronize(handle_), "cudaStreamSynchronize");
}

}  // namespace mtl::cuda
