#include "mtl/cuda/api.hpp"

#include <new>

namespace mtl::cuda {

CudaError::CudaError(cudaError_t code, const char* call)
    : Error(std::string(call) + ": " + describe(code)), code_(code) {}

std::string describe(cudaError_t code) {
  return std::string(cudaGetErrorString(code)) + " (" + cudaGetErrorName(code) + ")";
}

void check(cudaError_t code, const char* call) {
  if (code == cudaSuccess) return;
  if (!isFatal(code)) cudaGetLastError();  // said once, here
  if (code == cudaErrorMemoryAllocation) throw std::bad_alloc();
  throw CudaError(code, call);
}

bool isFatal(cudaError_t code) {
  switch (code) {
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorLaunchFailure:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorContextIsDestroyed:
    case cudaErrorDevicesUnavailable:
    case cudaErrorExternalDevice:
    case cudaErrorUnknown:
      return true;
    default:
      return false;
  }
}

CommandBufferErrorCode commandBufferError(cudaError_t code) {
  switch (code) {
    case cudaErrorMemoryAllocation:
      return CommandBufferErrorCode::OutOfMemory;
    case cudaErrorLaunchTimeout:
      return CommandBufferErrorCode::Timeout;
    case cudaErrorIllegalAddress:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
      return CommandBufferErrorCode::PageFault;
    case cudaErrorContextIsDestroyed:
    case cudaErrorDevicesUnavailable:
    case cudaErrorECCUncorrectable:
      return CommandBufferErrorCode::DeviceRemoved;
    default:
      return CommandBufferErrorCode::Internal;
  }
}

int deviceIndex(const std::string& name) {
  const std::string prefix = "cuda:";
  if (name.starts_with(prefix)) return std::stoi(name.substr(prefix.size()));
  int current = 0;
  check(cudaGetDevice(&current), "cudaGetDevice");
  return current;
}

CurrentDevice::CurrentDevice(int index) {
  check(cudaGetDevice(&previous_), "cudaGetDevice");
  if (previous_ == index) return;
  check(cudaSetDevice(index), "cudaSetDevice");
  changed_ = true;
}

CurrentDevice::~CurrentDevice() {
  if (changed_) cudaSetDevice(previous_);
}

}  // namespace mtl::cuda
