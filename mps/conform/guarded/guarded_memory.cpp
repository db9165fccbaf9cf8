#include "mps/conform/guarded/guarded_memory.hpp"

#include <sanitizer/asan_interface.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>
#include <vector>

#include "mps/core/types/error.hpp"
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

bool areSame(std::span<const std::byte> found, const std::byte* expected) {
  return found.empty() || std::memcmp(found.data(), expected, found.size()) == 0;
}

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

GuardedMemory::GuardedMemory(PageSide side, std::size_t bytes, std::size_t alignment)
    : pages_(std::make_unique<GuardedPages>(side, bytes, alignment)),
      offset_(pages_->offset()),
      length_(bytes) {
  fillWithGuard(whole());
  fillWithPoison(this->bytes());
  forbidBands();
}

GuardedMemory::~GuardedMemory() {
  if (buffer_ || pages_) allow(whole());  // others will have it
}
GuardedMemory::GuardedMemory(GuardedMemory&&) noexcept = default;
GuardedMemory& GuardedMemory::operator=(GuardedMemory&& other) noexcept {
  std::swap(buffer_, other.buffer_);
  std::swap(pages_, other.pages_);
  std::swap(offset_, other.offset_);
  std::swap(length_, other.length_);
  return *this;
}

bool GuardedMemory::isOnGpu() const {
  return buffer_ && buffer_->device()->kind() != mtl::DeviceKind::CPU;
}

std::byte* GuardedMemory::address() const {
  return pages_ ? whole().data() + offset_ : buffer_->memory()->address() + offset_;
}

std::span<std::byte> GuardedMemory::whole() const {
  if (pages_) return pages_->whole();
  return {buffer_->contents(), buffer_->length()};
}

std::span<std::byte> GuardedMemory::bytes() const {
  return whole().subspan(offset_, length_);
}

void GuardedMemory::didModify() {
  if (buffer_) buffer_->didModifyRange(0, buffer_->length());
}

void GuardedMemory::synchronize() {
  // A CPU's results lie in the host's memory; a command for each would take longer than most cases.
  if (!isOnGpu()) return;
  const auto commandBuffer = buffer_->device()->newCommandQueue()->commandBuffer();
  buffer_->synchronize(*commandBuffer);
  commandBuffer->commit();
  commandBuffer->throwIfFailed();
}

void GuardedMemory::forbidBands() const {
  if (isOnGpu()) return;  // copies between host and device take all of it
  forbid(whole().first(offset_));
  forbid(whole().subspan(offset_ + length_));
}

bool GuardedMemory::guardsIntact() const {
  const auto found = whole();
  allow(found);
  const std::size_t end = offset_ + length_;
  // The guard's pattern goes on behind the memory as if it filled that, too.
  std::vector<std::byte> guard(std::max(offset_, found.size() - end) + kGuard.size());
  fillWithGuard(guard);
  const bool areIntact = areSame(found.first(offset_), guard.data()) &&
                         areSame(found.subspan(end), guard.data() + end % kGuard.size());
  forbidBands();
  return areIntact;
}

}  // namespace mps::detail
