#include "mtl/cuda/cudnn.hpp"

#include <array>
#include <map>
#include <mutex>

#include "mtl/cuda/api.hpp"

namespace mtl::cuda {

LibrarySearch Cudnn::search() {
  return {"cuDNN 9", "libcudnn.so.9", "UNMETAL_CUDNN", {"nvidia/cudnn/lib"}};
}

Cudnn::Cudnn(const LibrarySearch& search) : library_(search) {
  library_.find(getVersion, "cudnnGetVersion");
  library_.find(getErrorString, "cudnnGetErrorString");
  library_.find(getLastErrorString, "cudnnGetLastErrorString");
  library_.find(create, "cudnnCreate");
  library_.find(destroy, "cudnnDestroy");
  library_.find(setStream, "cudnnSetStream");
  library_.find(createDescriptor, "cudnnBackendCreateDescriptor");
  library_.find(destroyDescriptor, "cudnnBackendDestroyDescriptor");
  library_.find(finalize, "cudnnBackendFinalize");
  library_.find(setAttribute, "cudnnBackendSetAttribute");
  library_.find(getAttribute, "cudnnBackendGetAttribute");
  library_.find(execute, "cudnnBackendExecute");
}

const Cudnn& Cudnn::library() {
  return loadedOnce<Cudnn>();
}

std::string Cudnn::version() const {
  const std::size_t number = getVersion();
  return std::to_string(number / 10000) + "." + std::to_string(number / 100 % 100) + "." +
         std::to_string(number % 100);
}

void Cudnn::check(cudnnStatus_t status, const char* call) const {
  if (status == CUDNN_STATUS_SUCCESS) return;
  std::array<char, 512> details{};
  getLastErrorString(details.data(), details.size() - 1);
  std::string text = std::string(call) + ": " + getErrorString(status);
  if (details[0] != '\0') text += std::string(" (") + details.data() + ")";
  throw CudnnError(text);
}

CudnnHandle::CudnnHandle(cudaStream_t stream) {
  const Cudnn& cudnn = Cudnn::library();
  cudnn.check(cudnn.create(&handle_), "cudnnCreate");
  if (stream == nullptr) return;
  const cudnnStatus_t status = cudnn.setStream(handle_, stream);
  if (status != CUDNN_STATUS_SUCCESS) cudnn.destroy(handle_);
  cudnn.check(status, "cudnnSetStream");
}

CudnnHandle::~CudnnHandle() {
  Cudnn::library().destroy(handle_);
}

cudnnHandle_t CudnnHandle::forPreparing() {
  int device = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  static std::mutex& mutex = *new std::mutex;
  static auto& handles = *new std::map<int, CudnnHandle>;
  const std::lock_guard lock(mutex);
  return handles.try_emplace(device, nullptr).first->second.get();
}

CudnnDescriptor::CudnnDescriptor(cudnnBackendDescriptorType_t type) {
  const Cudnn& cudnn = Cudnn::library();
  cudnn.check(cudnn.createDescriptor(type, &descriptor_), "cudnnBackendCreateDescriptor");
}

CudnnDescriptor::~CudnnDescriptor() {
  if (descriptor_ != nullptr) Cudnn::library().destroyDescriptor(descriptor_);
}

void CudnnDescriptor::set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                          std::int64_t count, const void* values) {
  const Cudnn& cudnn = Cudnn::library();
  cudnn.check(cudnn.setAttribute(descriptor_, name, type, count, values), "cudnnBackendSetAttribute");
}

std::int64_t CudnnDescriptor::get(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                                  std::int64_t count, void* values) const {
  const Cudnn& cudnn = Cudnn::library();
  std::int64_t found = 0;
  cudnn.check(cudnn.getAttribute(descriptor_, name, type, count, &found, values), "cudnnBackendGetAttribute");
  return found;
}

std::int64_t CudnnDescriptor::getNumber(cudnnBackendAttributeName_t name) const {
  std::int64_t value = 0;
  get(name, CUDNN_TYPE_INT64, 1, &value);
  return value;
}

void CudnnDescriptor::finalize() {
  const Cudnn& cudnn = Cudnn::library();
  cudnn.check(cudnn.finalize(descriptor_), "cudnnBackendFinalize");
}

}  // namespace mtl::cuda
