#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "mtl/types.hpp"

namespace mtl {

class Buffer;
class CommandQueue;
class Executor;
class Memory;

enum class DeviceKind { CPU, CUDA };

/// What runs kernels: the CPU, or a GPU where the build and the machine have one (Metal's MTLDevice).
///
/// Objects made on one device are never used with another; the encode that tries throws. Devices are thread
/// safe.
///
/// A device starts its threads with its first queue. A fork does not copy threads: in a child process, new queues of
/// such a device and new command buffers of such a queue throw Error. On the CPU the child can work with a
/// newCPUDevice; what was recorded or committed before the fork never completes there.
class Device : public std::enable_shared_from_this<Device> {
 public:
  virtual ~Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  [[nodiscard]] virtual DeviceKind kind() const = 0;
  /// "cpu" or "cuda:0"; the word that deviceNamed takes.
  [[nodiscard]] const std::string& name() const { return name_; }
  /// Name of the hardware, e.g. the processor's model.
  [[nodiscard]] virtual std::string description() const = 0;
  /// One sentence for each library that kernels of this device would use and that is not found, with how to say where it
  /// is. On a GPU these are cuDNN and cuBLASLt; without them kernels of our own compute, more slowly. Empty on a CPU.
  [[nodiscard]] virtual std::vector<std::string> missingLibraries() const { return {}; }
  /// Bytes of memory that the device can use well.
  [[nodiscard]] virtual std::size_t recommendedMaxWorkingSetSize() const = 0;
  /// Bytes that objects of this device hold now, recycled blocks not counted.
  [[nodiscard]] virtual std::size_t currentAllocatedSize() const = 0;
  /// Number of times that memory was asked from the system rather than recycled; constant in a steady state.
  [[nodiscard]] virtual std::size_t systemAllocationCount() const = 0;

  /// Threads that share a kernel on the CPU (default: the processors this process may use); 1 on a GPU.
  [[nodiscard]] virtual int threadCount() const = 0;
  /// Takes effect for work that starts later. Results of reductions may differ in the last bit between thread
  /// counts. @throws Error when count < 1 or the device has no such setting.
  virtual void setThreadCount(int count) = 0;

  /// A serial queue. @param maxCommandBufferCount how many uncompleted buffers it allows before
  /// CommandQueue::commandBuffer blocks; at least 1. @throws Error for 0, when the device's threads cannot be started,
  /// and in a child process of the one that has started them.
  std::shared_ptr<CommandQueue> newCommandQueue(std::size_t maxCommandBufferCount = 64);

  /// A buffer of `length` zero bytes. @throws Error for options with a storage mode that no buffer has, or with bits
  /// that mean nothing; std::bad_alloc when there is no memory.
  std::shared_ptr<Buffer> newBuffer(std::size_t length,
                                    ResourceOptions options = ResourceOptions::StorageModeManaged);
  /// A buffer with a copy of `bytes`. @throws as the other.
  std::shared_ptr<Buffer> newBuffer(std::span<const std::byte> bytes,
                                    ResourceOptions options = ResourceOptions::StorageModeManaged);

  /// @name The library's own
  /// @{
  /// Memory with undefined content, recycled through a bounded cache.
  /// @throws std::bad_alloc when there is none.
  virtual std::shared_ptr<Memory> allocate(std::size_t bytes) = 0;
  /// Gives memory that waits to be recycled back to the system. Where more work follows, it is asked for anew.
  virtual void releaseRecycledMemory() = 0;
  /// Where a new queue's committed work runs.
  virtual std::shared_ptr<Executor> newExecutor() = 0;
  /// @}

 protected:
  explicit Device(std::string name) : name_(std::move(name)) {}

 private:
  std::string name_;
};

/// The CPU. (A GPU is asked for by name, so that results do not change from machine to machine.)
std::shared_ptr<Device> createSystemDefaultDevice();

/// Every device of this machine that this build can use; the CPU first.
std::vector<std::shared_ptr<Device>> copyAllDevices();

/// "cpu", "cuda" (the same as "cuda:0") or "cuda:N".
/// @throws Error in one sentence that says what is missing: the build, the driver, the device; or that the device is too old,
/// which is a compute capability below 8.0 (docs/decisions.md, D12).
std::shared_ptr<Device> deviceNamed(std::string_view name);

/// A CPU device of its own, with its own executing thread, beside the default one.
/// @param threadCount threads that share a kernel, at least 1
std::shared_ptr<Device> newCPUDevice(int threadCount);

}  // namespace mtl
