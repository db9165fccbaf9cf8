#include "mtl/device.hpp"

#include <algorithm>
#include <charconv>
#include <cstring>

#include "mtl/back_ends.hpp"
#include "mtl/buffer.hpp"
#include "mtl/command_queue.hpp"
#include "mtl/cpu/device.hpp"
#include "mtl/error.hpp"
#include "mtl/memory.hpp"

namespace mtl {
namespace {

/// The storage mode in the options. @throws Error when one of their parts is no value that a buffer can have
StorageMode storageModeOf(ResourceOptions options) {
  const auto bits = static_cast<std::uint64_t>(options);
  const auto cacheMode = static_cast<CPUCacheMode>(bits & 0xFU);
  const auto storageMode = static_cast<StorageMode>((bits >> 4U) & 0xFU);
  const std::uint64_t hazardTracking = bits >> 8U;
  if (cacheMode > CPUCacheMode::WriteCombined || storageMode > StorageMode::Private || hazardTracking > 2)
    throw Error(
        "Device: newBuffer with the options " + std::to_string(bits) +
        ", expected a sum of StorageModeShared, StorageModeManaged or StorageModePrivate and a cache mode");
  return storageMode;
}

}  // namespace

std::shared_ptr<CommandQueue> Device::newCommandQueue(std::size_t maxCommandBufferCount) {
  if (maxCommandBufferCount == 0) throw Error("Device: maxCommandBufferCount is 0, expected at least 1");
  return std::make_shared<CommandQueue>(shared_from_this(), maxCommandBufferCount);
}

std::shared_ptr<Buffer> Device::newBuffer(std::size_t length, ResourceOptions options) {
  const StorageMode mode = storageModeOf(options);
  auto memory = allocate(length);
  memory->fillWithZeros();
  return std::make_shared<Buffer>(shared_from_this(), std::move(memory), mode);
}

std::shared_ptr<Buffer> Device::newBuffer(std::span<const std::byte> bytes, ResourceOptions options) {
  auto buffer = newBuffer(bytes.size(), options);
  if (!bytes.empty()) std::memcpy(buffer->memory()->contents(), bytes.data(), bytes.size());
  buffer->memory()->didModifyRange(0, bytes.size());
  return buffer;
}

std::shared_ptr<Device> createSystemDefaultDevice() {
  return cpu::defaultDevice();
}

std::vector<std::shared_ptr<Device>> copyAllDevices() {
  std::vector<std::shared_ptr<Device>> devices{cpu::defaultDevice()};
  for (auto& device : cudaDevices()) devices.push_back(std::move(device));
  return devices;
}

std::shared_ptr<Device> deviceNamed(std::string_view name) {
  if (name == "cpu") return cpu::defaultDevice();
  if (name == "cuda") return cudaDevice(0);
  constexpr std::string_view prefix = "cuda:";
  if (name.starts_with(prefix)) {
    int index = -1;
    const std::string_view digits = name.substr(prefix.size());
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), index);
    if (error == std::errc{} && end == digits.data() + digits.size() && index >= 0) return cudaDevice(index);
  }
  throw Error("device \"" + std::string(name) + "\" is unknown, expected cpu, cuda or cuda:N");
}

std::shared_ptr<Device> newCPUDevice(int threadCount) {
  if (threadCount < 1)
    throw Error("Device: threadCount is " + std::to_string(threadCount) + ", expected at least 1");
  return cpu::newDevice(threadCount);
}

}  // namespace mtl
