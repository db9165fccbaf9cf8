#include "mtl/cuda/memory_pool.hpp"

#include <cstring>
#include <mutex>
#include <utility>

#include "mtl/command.hpp"

namespace mtl::cuda {
namespace {

void freeDevice(int device, std::byte* address) noexcept {
  int previous = 0;
  cudaGetDevice(&previous);
  cudaSetDevice(device);
  cudaFree(address);
  cudaSetDevice(previous);
}

cudaError_t allocateDevice(void** address, std::size_t bytes) {
  return cudaMalloc(address, bytes);
}
cudaError_t allocateHost(void** address, std::size_t bytes) {
  return cudaHostAlloc(address, bytes, cudaHostAllocPortable);
}

}  // namespace

class MemoryPool::Block final : public Memory, public std::enable_shared_from_this<Block> {
 public:
  Block(std::shared_ptr<MemoryPool> pool, BlockCache::Block block, std::size_t length)
      : Memory(block.address, length), pool_(std::move(pool)), capacity_(block.capacity) {}
  ~Block() override {
    pool_->live_ -= capacity_;
    pool_->deviceBlocks_.put({address(), capacity_});
    if (mirror_.address != nullptr) pool_->hostBlocks_.put(mirror_);
  }

  std::byte* contents() override {
    const std::lock_guard lock(mutex_);
    if (mirror_.address == nullptr) {
      mirror_ = pool_->take(pool_->hostBlocks_, length(), allocateHost, "cudaHostAlloc");
      if (wasWritten_)
        pool_->uploads_.read(address(), {mirror_.address, length()});
      else if (isZero_)
        std::memset(mirror_.address, 0, length());
    }
    return mirror_.address;
  }

  void didModifyRange(std::size_t offset, std::size_t length) override {
    pool_->uploads_.write(address() + offset, {contents() + offset, length});
  }

  void write(std::size_t offset, std::span<const std::byte> bytes) override {
    const std::lock_guard lock(mutex_);
    pool_->uploads_.write(address() + offset, bytes);
    wasWritten_ = true;
    if (mirror_.address != nullptr && !bytes.empty())
      std::memcpy(mirror_.address + offset, bytes.data(), bytes.size());
  }

  /// Invalid bytes are copied, too: good ones may lie beside them, and who reads them is told.
  void synchronize(CommandBuffer& commandBuffer) override {
    const auto self = shared_from_this();
    Command command;
    command.label = "synchronize";
    command.run = [to = contents(), from = address(), bytes = length()](mtl::Stream& stream) {
      check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, asCuda(stream).handle()),
            "cudaMemcpyAsync");
    };
    command.retained.push_back(self);
    commandBuffer.append(std::move(command));
  }

  void fillWithZeros() override {
    pool_->uploads_.fillWithZeros(address(), length());
    const std::lock_guard lock(mutex_);
    isZero_ = true;
    wasWritten_ = false;
    if (mirror_.address != nullptr) std::memset(mirror_.address, 0, length());
  }

 private:
  std::shared_ptr<MemoryPool> pool_;
  std::size_t capacity_;
  std::mutex mutex_;
  BlockCache::Block mirror_;
  bool isZero_ = false;      ///< was, when the host last wrote it
  bool wasWritten_ = false;  ///< since then by write(): the mirror, if there is none, begins with a download
};

MemoryPool::MemoryPool(int device, std::size_t cacheLimit)
    : device_(device),
      uploads_(device),
      deviceBlocks_(cacheLimit, [device](std::byte* address) { freeDevice(device, address); }),
      hostBlocks_(cacheLimit, [](std::byte* address) { cudaFreeHost(address); }) {}

BlockCache::Block MemoryPool::take(BlockCache& cache, std::size_t bytes, SystemAllocation allocate,
                                   const char* call) {
  const std::size_t capacity = BlockCache::capacityFor(bytes);
  if (const auto block = cache.take(capacity)) return *block;
  const CurrentDevice current(device_);
  void* address = nullptr;
  cudaError_t error = allocate(&address, capacity);
  if (error == cudaErrorMemoryAllocation) {  // what waits for reuse may be enough
    cudaGetLastError();
    cache.clear();
    error = allocate(&address, capacity);
  }
  check(error, call);
  ++systemAllocations_;
  return {static_cast<std::byte*>(address), capacity};
}

std::shared_ptr<Memory> MemoryPool::allocate(std::size_t bytes) {
  const BlockCache::Block block = take(deviceBlocks_, bytes, allocateDevice, "cudaMalloc");
  live_ += block.capacity;
  return std::make_shared<Block>(shared_from_this(), block, bytes);
}

}  // namespace mtl::cuda
