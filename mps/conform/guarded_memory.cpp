#include "mps/conform/guarded_memory.hpp"

#include <algorithm>
#include <array>

#include "mps/core/error.hpp"
#include "mtl/buffer.hpp"
#include "mtl/command_buffer.hpp"
#include "mtl/command_queue.hpp"
#include "mtl/device.hpp"
#include "mtl/memory.hpp"

namespace mps::detail {
namespace {

/// 0xFFAB as float16, 0xFFABFFAB as float32, little end first.
constexpr std::array<std::byte, 2> kGuard{std::byte{0xAB}, std::byte{0xFF}};

}  // namespace

void fillWithPoison(std::span<std::byte> memory) {
  std::ranges::fill(memory, std::byte{0xFF});
}

void fillWithGuard(std::span<std::byte> memory) {
  for (std::size_t i = 0; i < memory.size(); ++i) memory[i] = kGuard[i % 2];
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
}

GuardedMemory::~GuardedMemory() = default;
GuardedMemory::GuardedMemory(GuardedMemory&&) noexcept = default;
GuardedMemory& GuardedMemory::operator=(GuardedMemory&&) noexcept = default;

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
  const auto commandBuffer = buffer_->device()->newCommandQueue()->commandBuffer();
  buffer_->synchronize(*commandBuffer);
  commandBuffer->commit();
  commandBuffer->throwIfFailed();
}

bool GuardedMemory::guardsIntact() const {
  std::vector<std::byte> expected(buffer_->length());
  fillWithGuard(expected);
  const auto found = whole();
  const std::size_t end = offset_ + length_;
  return std::equal(found.begin(), found.begin() + static_cast<std::ptrdiff_t>(offset_), expected.begin()) &&
         std::equal(found.begin() + static_cast<std::ptrdiff_t>(end), found.end(),
                    expected.begin() + static_cast<std::ptrdiff_t>(end));
}

}  // namespace mps::detail
