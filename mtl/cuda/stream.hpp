#pragma once

#include <memory>

#include "mtl/cuda/api.hpp"
#include "mtl/stream.hpp"

namespace mtl::cuda {

class CudnnHandle;

/// A CUDA stream: a command is one or a few launches on it. The executing thread launches and does not wait.
class Stream final : public mtl::Stream {
 public:
  /// On the calling thread's current device.
  Stream();
  ~Stream() override;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  void read(const std::byte* address, std::span<std::byte> bytes) override;

  [[nodiscard]] cudaStream_t handle() const { return handle_; }
  /// cuDNN's handle that runs things on this stream, made by the first call. @throws Error when it cannot be made.
  const CudnnHandle& cudnn();

 private:
  cudaStream_t handle_ = nullptr;
  std::unique_ptr<CudnnHandle> cudnn_;
};

/// The CUDA stream behind a plan's stream; the plan was prepared for this back end.
inline Stream& asCuda(mtl::Stream& stream) {
  return static_cast<Stream&>(stream);
}

}  // namespace mtl::cuda
