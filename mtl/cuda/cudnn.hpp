#pragma once

#include <cudnn_graph.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "mtl/cuda/shared_library.hpp"
#include "mtl/error.hpp"

/// cuDNN's graph API, found at run time. Engine-internal.
namespace mtl::cuda {

/// A call of cuDNN that failed, in its words.
class CudnnError : public Error {
 public:
  using Error::Error;
};

/// The functions that we call.
class Cudnn {
 public:
  /// The library of this process, loaded by the first call. @throws Error, every time, when it cannot be loaded.
  static const Cudnn& library();
  static LibrarySearch search();

  explicit Cudnn(const LibrarySearch& search);

  /// @throws CudnnError that names `call` when it did not succeed.
  void check(cudnnStatus_t status, const char* call) const;
  /// "9.19.0".
  [[nodiscard]] std::string version() const;

  decltype(::cudnnGetVersion)* getVersion = nullptr;
  decltype(::cudnnGetErrorString)* getErrorString = nullptr;
  decltype(::cudnnGetLastErrorString)* getLastErrorString = nullptr;
  decltype(::cudnnCreate)* create = nullptr;
  decltype(::cudnnDestroy)* destroy = nullptr;
  decltype(::cudnnSetStream)* setStream = nullptr;
  decltype(::cudnnBackendCreateDescriptor)* createDescriptor = nullptr;
  decltype(::cudnnBackendDestroyDescriptor)* destroyDescriptor = nullptr;
  decltype(::cudnnBackendFinalize)* finalize = nullptr;
  decltype(::cudnnBackendSetAttribute)* setAttribute = nullptr;
  decltype(::cudnnBackendGetAttribute)* getAttribute = nullptr;
  decltype(::cudnnBackendExecute)* execute = nullptr;

 private:
  SharedLibrary library_;
};

/// A handle of the calling thread's current device. Making one takes long.
class CudnnHandle {
 public:
  /// @param stream on which it runs things; null for one that only prepares
  explicit CudnnHandle(cudaStream_t stream);
  ~CudnnHandle();
  CudnnHandle(const CudnnHandle&) = delete;
  CudnnHandle& operator=(const CudnnHandle&) = delete;
  [[nodiscard]] cudnnHandle_t get() const { return handle_; }

  /// The one that plans are prepared with on the current device; lives as long as the process.
  static cudnnHandle_t forPreparing();

 private:
  cudnnHandle_t handle_ = nullptr;
};

/// A descriptor of the graph API, with its attributes by type.
class CudnnDescriptor {
 public:
  explicit CudnnDescriptor(cudnnBackendDescriptorType_t type);
  ~CudnnDescriptor();
  CudnnDescriptor(CudnnDescriptor&& other) noexcept : descriptor_(other.descriptor_) {
    other.descriptor_ = nullptr;
  }
  CudnnDescriptor& operator=(CudnnDescriptor&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }

  void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::int64_t count,
           const void* values);
  void set(cudnnBackendAttributeName_t name, std::int64_t value) { set(name, CUDNN_TYPE_INT64, 1, &value); }
  void set(cudnnBackendAttributeName_t name, std::span<const std::int64_t> values) {
    set(name, CUDNN_TYPE_INT64, static_cast<std::int64_t>(values.size()), values.data());
  }
  void set(cudnnBackendAttributeName_t name, float value) { set(name, CUDNN_TYPE_FLOAT, 1, &value); }
  void set(cudnnBackendAttributeName_t name, cudnnDataType_t value) {
    set(name, CUDNN_TYPE_DATA_TYPE, 1, &value);
  }
  void set(cudnnBackendAttributeName_t name, cudnnHandle_t value) { set(name, CUDNN_TYPE_HANDLE, 1, &value); }
  void set(cudnnBackendAttributeName_t name, const CudnnDescriptor& value) {
    set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value.descriptor_);
  }

  /// @return how many there are
  std::int64_t get(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::int64_t count,
                   void* values) const;
  [[nodiscard]] std::int64_t getNumber(cudnnBackendAttributeName_t name) const;

  void finalize();
  [[nodiscard]] cudnnBackendDescriptor_t get() const { return descriptor_; }

 private:
  cudnnBackendDescriptor_t descriptor_ = nullptr;
};

}  // namespace mtl::cuda
