#include "mtl/cuda/stream.hpp"

#include "mtl/cuda/cudnn.hpp"

namespace mtl::cuda {

Stream::Stream() {
  check(cudaStreamCreateWithFlags(&handle_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
}

Stream::~Stream() {
  cudnn_.reset();
  cudaStreamDestroy(handle_);
}

void Stream::read(const std::byte* address, std::span<std::byte> bytes) {
  check(cudaMemcpyAsync(bytes.data(), address, bytes.size(), cudaMemcpyDeviceToHost, handle_),
        "cudaMemcpyAsync");
  check(cudaStreamSynchronize(handle_), "cudaStreamSynchronize");
}

const CudnnHandle& Stream::cudnn() {
  if (!cudnn_) cudnn_ = std::make_unique<CudnnHandle>(handle_);
  return *cudnn_;
}

}  // namespace mtl::cuda
