#include <cuda_runtime_api.h>

#include <cstring>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "mtl/command.hpp"
#include "mtl/cuda/api.hpp"
#include "mtl/cuda/captured_graph.hpp"
#include "mtl/cuda/stream.hpp"
#include "mtl/error.hpp"
#include "python/source/arrays/array_memory.hpp"
#include "python/source/binding/interpreter.hpp"

namespace python {
namespace {

namespace nb = nanobind;

using mtl::cuda::check;
using mtl::cuda::CurrentDevice;

/// With a mirror on the host, made by the first contents().
class GpuMemory final : public mtl::Memory, public std::enable_shared_from_this<GpuMemory> {
 public:
  GpuMemory(int device, std::byte* address, std::size_t length, const nb::ndarray<>& array)
      : Memory(address, length), device_(device), array_(heldForLibrary(array)) {}

  std::byte* contents() override {
    const std::lock_guard lock(mutex_);
    if (mirror_.empty()) {
      mirror_.resize(length());
      const CurrentDevice current(device_);
      check(cudaMemcpy(mirror_.data(), address(), length(), cudaMemcpyDeviceToHost), "cudaMemcpy");
    }
    return mirror_.data();
  }
  void didModifyRange(std::size_t offset, std::size_t length) override {
    upload(offset, {contents() + offset, length});
  }
  void write(std::size_t offset, std::span<const std::byte> bytes) override {
    upload(offset, bytes);
    const std::lock_guard lock(mutex_);
    if (!mirror_.empty() && !bytes.empty()) std::memcpy(mirror_.data() + offset, bytes.data(), bytes.size());
  }
  /// Invalid bytes are copied, too: good ones may lie beside them, and who reads them is told.
  void synchronize(mtl::CommandBuffer& commandBuffer) override {
    const auto self = shared_from_this();
    mtl::Command command;
    command.label = "synchronize";
    command.run = [to = contents(), from = address(), bytes = length()](mtl::Stream& stream) {
      check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, mtl::cuda::asCuda(stream).handle()),
            "cudaMemcpyAsync");
    };
    command.retained.push_back(self);
    commandBuffer.append(std::move(command));
  }
  void fillWithZeros() override {
    const CurrentDevice current(device_);
    check(cudaMemset(address(), 0, length()), "cudaMemset");
    check(cudaStreamSynchronize(cudaStreamLegacy), "cudaStreamSynchronize");
    const std::lock_guard lock(mutex_);
    mirror_.assign(mirror_.size(), std::byte{0});
  }

 private:
  /// The streams of the library do not wait for the default stream. Nor is the device waited for: a stream may capture.
  void upload(std::size_t offset, std::span<const std::byte> bytes) {
    const CurrentDevice current(device_);
    check(cudaMemcpy(address() + offset, bytes.data(), bytes.size(), cudaMemcpyHostToDevice), "cudaMemcpy");
    check(cudaStreamSynchronize(cudaStreamLegacy), "cudaStreamSynchronize");
  }

  int device_;
  std::shared_ptr<nb::ndarray<>> array_;
  std::mutex mutex_;
  std::vector<std::byte> mirror_;
};

/// Other Python threads run meanwhile: the GPU may wait for one of them.
void waitFor(int device) {
  const LockReleased released;
  mtl::cuda::waitForDevice(device);
}

struct Loan {
  int device;
  nb::object owner;
};

}  // namespace

std::shared_ptr<mtl::Memory> gpuMemory(const mtl::Device& device, std::byte* address, std::size_t length,
                                       const nb::ndarray<>& array) {
  const int index = mtl::cuda::deviceIndex(device.name());
  waitFor(index);
  return std::make_shared<GpuMemory>(index, address, length, array);
}

nb::object lentGpuMemory(const mtl::Device& device, nb::handle owner) {
  const int index = mtl::cuda::deviceIndex(device.name());
  waitFor(index);
  return nb::capsule(new Loan{index, nb::borrow(owner)}, [](void* lent) noexcept {
    const std::unique_ptr<Loan> back(static_cast<Loan*>(lent));
    try {
      waitFor(back->device);
    } catch (const mtl::Error&) {  // the device is lost, and nothing runs on it
    }
  });
}

}  // namespace python
