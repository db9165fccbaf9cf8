#include "mtl/cuda/uploads.hpp"

#include <algorithm>
#include <cstring>

namespace mtl::cuda {
namespace {

cudaEvent_t newEvent() {
  cudaEvent_t event = nullptr;
  check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreateWithFlags");
  return event;
}

}  // namespace

Uploads::Uploads(int device) : device_(device) {
  void* ring = nullptr;
  check(cudaHostAlloc(&ring, slotBytes * slotCount, cudaHostAllocPortable), "cudaHostAlloc");
  ring_ = static_cast<std::byte*>(ring);
  for (std::size_t i = 0; i < slotCount; ++i) copied_.push_back(newEvent());
  last_ = newEvent();
}

Uploads::~Uploads() {
  cudaStreamSynchronize(stream_.handle());
  for (cudaEvent_t event : copied_) cudaEventDestroy(event);
  cudaEventDestroy(last_);
  cudaFreeHost(ring_);
}

void Uploads::write(std::byte* address, std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  const CurrentDevice current(device_);
  const std::lock_guard lock(mutex_);
  while (!bytes.empty()) {
    const auto part = bytes.first(std::min(slotBytes, bytes.size()));
    std::byte* const slot = ring_ + next_ * slotBytes;
    check(cudaEventSynchronize(copied_[next_]), "cudaEventSynchronize");
    std::memcpy(slot, part.data(), part.size());
    check(cudaMemcpyAsync(address, slot, part.size(), cudaMemcpyHostToDevice, stream_.handle()),
          "cudaMemcpyAsync");
    check(cudaEventRecord(copied_[next_], stream_.handle()), "cudaEventRecord");
    next_ = (next_ + 1) % slotCount;
    address += part.size();
    bytes = bytes.subspan(part.size());
  }
  check(cudaEventRecord(last_, stream_.handle()), "cudaEventRecord");
}

void Uploads::fillWithZeros(std::byte* address, std::size_t bytes) {
  if (bytes == 0) return;
  const CurrentDevice current(device_);
  const std::lock_guard lock(mutex_);
  check(cudaMemsetAsync(address, 0, bytes, stream_.handle()), "cudaMemsetAsync");
  check(cudaEventRecord(last_, stream_.handle()), "cudaEventRecord");
}

void Uploads::read(const std::byte* address, std::span<std::byte> bytes) {
  const CurrentDevice current(device_);
  const std::lock_guard lock(mutex_);
  stream_.read(address, bytes);
}

void Uploads::letWait(const Stream& stream) {
  const std::lock_guard lock(mutex_);
  check(cudaStreamWaitEvent(stream.handle(), last_, 0), "cudaStreamWaitEvent");
}

}  // namespace mtl::cuda
