#pragma once

#include <cuda_runtime_api.h>

#include <string>

#include "mtl/command_buffer.hpp"
#include "mtl/error.hpp"

/// Calls of the CUDA run time. Engine-internal; only files of the CUDA back end include this.
namespace mtl::cuda {

/// A CUDA call that failed.
class CudaError : public Error {
 public:
  CudaError(cudaError_t code, const char* call);
  [[nodiscard]] cudaError_t code() const { return code_; }

 private:
  cudaError_t code_;
};

/// @throws CudaError that names `call` when it did not succeed. @throws std::bad_alloc for want of memory.
void check(cudaError_t code, const char* call);

/// CUDA's words for an error, with its name in brackets.
std::string describe(cudaError_t code);

/// Whether the process cannot use the device any more after this error.
bool isFatal(cudaError_t code);

/// What a command buffer reports for it.
CommandBufferErrorCode commandBufferError(cudaError_t code);

/// The number in a device's name, "cuda:1"; for another name the calling thread's current device.
int deviceIndex(const std::string& name);

/// Makes a device the calling thread's current one, and then the previous one again.
class CurrentDevice {
 public:
  explicit CurrentDevice(int index);
  ~CurrentDevice();
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;

 private:
  int previous_ = 0;
  bool changed_ = false;
};

}  // namespace mtl::cuda
