#include "mps/conform/guarded_memory.hpp"

#include <sanitizer/asan_interface.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "mps/core/error.hpp"
#include "mtl/buffer.hpp"
#include "mtl/command_buffer.hpp"
#include "mtl/command_queue.hpp"
#include "mtl/device.hpp"
#include "mtl/memory.hpp"

// Null in a program without the address sanitizer. Whether it watches this file, too, does not matter.
#pragma weak __asan_poison_memory_region
#pragma weak __asan_unpoison_memory_region

namespace mps::detail {
namespace {

/// What an address sanitizer says of memory that a kernel may not even read.
void forbid(std::span<std::byte> memory) {
  if (__asan_poison_memory_region != nullptr) __asan_poison_memory_region(memory.data(), memory.size());
}
void allow(std::span<std::byte> memory) {
  if (__asan_unpoison_memory_region != nullptr) __asan_unpoison_memory_region(memory.data(), memory.size());
}

/// 0xFFAB as float16, 0xFFABFFAB as float32, little end first.
constexpr std::array<std::byte, 2> kGuard{std::byte{0xAB}, std::byte{0xFF}};

}  // namespace

// By calls of the C library: a sanitizer checks their range once.
void fillWithPoison(std::span<std::byte> memory) {
  if (!memory.empty()) std::memset(memory.data(), 0xFF, memory.size());
}

void fillWithGuard(std::span<std::byte> memory) {
  std::size_t filled = std::min(memory.size(), kGuard.size());
  std::copy_n(kGuard.begin(), filled, memory.begin());
  while (filled < memory.size()) {
    const std::size_t more = std::min(filled, memory.size() - filled);
    std::memcpy(memory.data() + filled, memory.data(), more);
    filled += more;
  }
}

GuardedMemory::GuardedMemory(const std::shared_ptr<mtl::Device>& device, std::size_t bytes,
                             std::size_t misalignment)
    : offset_(guardBytes + misalignment), length_(bytes) {
  if (misalignment >= guardBytes)
    throw Error("GuardedMemory", "misalignment", std::to_string(misalignment),
                "less than " + std::to_string(guardBytes));
  buffer_ = device->newBuffer(length_ + 3 * guardBytes);
  fillWithGuard(whole());
  fillWithPoison(this->bytes());
  didModify();
  forbidBands();
}

GuardedMemory::~GuardedMemory() {
  if (buffer_) allow(whole());  // others will have it
}
GuardedMemory::GuardedMemory(GuardedMemory&&) noexcept = default;
GuardedMemory& GuardedMemory::operator=(GuardedMemory&& other) noexcept {
  std::swap(buffer_, other.buffer_);
  std::swap(offset_, other.offset_);
  std::swap(length_, other.length_);
  return *this;
}

std::byte* GuardedMemory::address() const {
  return buffer_->memory()->address() + offset_;
}

std::span<std::byte> GuardedMemory::whole() const {
  return {buffer_->contents(), buffer_->length()};
}

std::span<std::byte> GuardedMemory::bytes() const {
  return whole().subspan(offset_, length_);
}

void GuardedMemory::didModify() {
  buffer_->didModifyRange(0, buffer_->length());
}

void GuardedMemory::synchronize() {
  // A CPU's results lie in the host's memory; a command for each would take longer than most cases.
  if (buffer_->device()->kind() == mtl::DeviceKind::CPU) return;
  const auto commandBuffer = buffer_->device()->newCommandQueue()->commandBuffer();
  buffer_->synchronize(*commandBuffer);
  commandBuffer->commit();
  commandBuffer->throwIfFailed();
}

void GuardedMemory::forbidBands() const {
  if (buffer_->device()->kind() != mtl::DeviceKind::CPU)
    return;  // copies between host and device take all of it
  forbid(whole().first(offset_));
  forbid(whole().subspan(offset_ + length_));
}

bool GuardedMemory::guardsIntact() const {
  const auto found = whole();
  allow(found);
  const std::size_t end = offset_ + length_;
  // The guard's pattern goes on behind the memory as if it filled that, too.
  std::array<std::byte, 3 * guardBytes + kGuard.size()> guard;
  fillWithGuard(guard);
  const bool areIntact =
      std::memcmp(found.data(), guard.data(), offset_) == 0 &&
      std::memcmp(found.data() + end, guard.data() + end % kGuard.size(), found.size() - end) == 0;
  forbidBands();
  return areIntact;
}

}  // namespace mps::detail
