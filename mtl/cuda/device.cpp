#include "mtl/cuda/device.hpp"

#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "mtl/cuda/cublaslt.hpp"
#include "mtl/cuda/cudnn.hpp"
#include "mtl/cuda/executor.hpp"
#include "mtl/cuda/memory_pool.hpp"
#include "mtl/error.hpp"

namespace mtl::cuda {
namespace {

class CudaDevice final : public Device {
 public:
  CudaDevice(int index, const cudaDeviceProp& properties)
      : Device("cuda:" + std::to_string(index)),
        description_(properties.name),
        memoryBytes_(properties.totalGlobalMem),
        pool_(std::make_shared<MemoryPool>(index, memoryBytes_ / 2)),
        engine_(std::make_shared<Engine>(index, pool_)) {}

  [[nodiscard]] DeviceKind kind() const override { return DeviceKind::CUDA; }
  [[nodiscard]] std::string description() const override { return description_; }
  [[nodiscard]] std::vector<std::string> missingLibraries() const override {
    std::vector<std::string> sentences{whyMissing<Cudnn>(), whyMissing<CublasLt>()};
    std::erase(sentences, "");
    return sentences;
  }
  [[nodiscard]] std::size_t recommendedMaxWorkingSetSize() const override { return memoryBytes_; }
  [[nodiscard]] std::size_t currentAllocatedSize() const override { return pool_->liveBytes(); }
  [[nodiscard]] std::size_t systemAllocationCount() const override { return pool_->systemAllocations(); }
  [[nodiscard]] int threadCount() const override { return 1; }
  void setThreadCount(int count) override {
    throw Error("Device: threadCount is " + std::to_string(count) + ", but " + name() +
                " has no such setting");
  }
  std::shared_ptr<Memory> allocate(std::size_t bytes) override { return pool_->allocate(bytes); }
  void releaseRecycledMemory() override { pool_->releaseRecycled(); }
  std::shared_ptr<Executor> newExecutor() override { return engine_->newExecutor(); }

 private:
  std::string description_;
  std::size_t memoryBytes_;
  std::shared_ptr<MemoryPool> pool_;
  std::shared_ptr<Engine> engine_;
};

/// The number of devices, or why there is none.
struct Inventory {
  int count = 0;
  std::string missing;
};

Inventory takeInventory() {
  Inventory inventory;
  const cudaError_t error = cudaGetDeviceCount(&inventory.count);
  if (error == cudaSuccess && inventory.count > 0) return inventory;
  cudaGetLastError();
  inventory.count = 0;
  int driver = 0;
  const bool hasDriver = cudaDriverGetVersion(&driver) == cudaSuccess && driver > 0;
  if (!hasDriver)
    inventory.missing = "this machine has no NVIDIA driver";
  else if (error == cudaErrorInsufficientDriver)
    inventory.missing = "the NVIDIA driver is too old: it knows CUDA " + std::to_string(driver / 1000) + "." +
                        std::to_string(driver % 1000 / 10) + ", this library needs " +
                        std::to_string(CUDART_VERSION / 1000) + "." +
                        std::to_string(CUDART_VERSION % 1000 / 10);
  else if (error == cudaSuccess || error == cudaErrorNoDevice)
    inventory.missing = "this machine shows no CUDA device";
  else
    inventory.missing = describe(error);
  return inventory;
}

int majorOf(int index) {
  int major = 0;
  check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, index), "cudaDeviceGetAttribute");
  return major;
}

}  // namespace

std::string whyTooOld(int major, int minor) {
  constexpr int oldestMajor = 8;
  if (major >= oldestMajor) return {};
  return "its compute capability is " + std::to_string(major) + "." + std::to_string(minor) +
         ", this library needs " + std::to_string(oldestMajor) + ".0";
}

std::vector<std::shared_ptr<Device>> devices() {
  std::vector<std::shared_ptr<Device>> all;
  const int count = takeInventory().count;
  for (int i = 0; i < count; ++i)
    if (whyTooOld(majorOf(i), 0).empty()) all.push_back(device(i));
  return all;
}

std::shared_ptr<Device> device(int index) {
  const auto refuse = [&](const std::string& why) {
    throw Error("device cuda:" + std::to_string(index) + " cannot be used: " + why);
  };
  // Never destroyed: their threads run until the process ends, when the CUDA run time is gone before them.
  static std::mutex& mutex = *new std::mutex;
  static auto& made = *new std::map<int, std::shared_ptr<Device>>;
  const std::lock_guard lock(mutex);
  if (const auto found = made.find(index); found != made.end()) return found->second;
  const Inventory inventory = takeInventory();
  if (inventory.count == 0) refuse(inventory.missing);
  if (index < 0 || index >= inventory.count)
    refuse("this machine has " + std::to_string(inventory.count) + " CUDA device" +
           (inventory.count == 1 ? "" : "s") + ", numbered from 0");
  try {
    cudaDeviceProp properties{};
    check(cudaGetDeviceProperties(&properties, index), "cudaGetDeviceProperties");
    if (const std::string why = whyTooOld(properties.major, properties.minor); !why.empty()) refuse(why);
    const CurrentDevice current(index);
    const auto device = std::make_shared<CudaDevice>(index, properties);
    made.emplace(index, device);
    return device;
  } catch (const CudaError& error) {
    refuse(error.what());
  }
  return nullptr;
}

}  // namespace mtl::cuda
