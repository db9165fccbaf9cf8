#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "mps/conform/guarded/guarded_pages.hpp"

namespace mtl {
class Buffer;
class Device;
}  // namespace mtl

/// Memory that shows when a kernel reads what nobody wrote, or writes where it must not.
namespace mps::detail {

/// Fills memory with bytes that are NaN in both floating-point formats: what a kernel leaves like that, or
/// computes from it, fails every comparison.
void fillWithPoison(std::span<std::byte> memory);
/// Fills memory with another NaN, a signalling one: even a kernel that copies poison over it is noticed, and
/// one that only loads and stores it as a float changes its bits.
void fillWithGuard(std::span<std::byte> memory);

/// Device memory between two guard bands, which the address sanitizer stops a CPU's kernels from reading.
///
///     GuardedMemory scratch(device, plan->scratchBytes());
///     plan->run(stream, {.scratch = scratch.address()});
///     EXPECT_TRUE(scratch.guardsIntact());
class GuardedMemory {
 public:
  static constexpr std::size_t guardBytes = 256;

  /// `bytes` bytes of poison; the address is a multiple of 64 plus `misalignment`, which is below guardBytes.
  GuardedMemory(const std::shared_ptr<mtl::Device>& device, std::size_t bytes, std::size_t misalignment = 0);
  /// Poison for a CPU, beside a page that nobody may touch; what alignment leaves between them is a guard band.
  GuardedMemory(PageSide side, std::size_t bytes, std::size_t alignment);
  ~GuardedMemory();
  GuardedMemory(GuardedMemory&&) noexcept;
  GuardedMemory& operator=(GuardedMemory&&) noexcept;

  /// Where the device finds the bytes.
  [[nodiscard]] std::byte* address() const;
  /// The host's view of them; on the CPU the same memory.
  [[nodiscard]] std::span<std::byte> bytes() const;
  /// The host wrote bytes(): later commands read them.
  void didModify();
  /// Makes the results of commands that have ended visible in bytes(); waits.
  void synchronize();
  /// Whether the bands are as they were made. Call synchronize() first.
  [[nodiscard]] bool guardsIntact() const;

 private:
  [[nodiscard]] std::span<std::byte> whole() const;
  void forbidBands() const;

  [[nodiscard]] bool isOnGpu() const;

  std::shared_ptr<mtl::Buffer> buffer_;
  std::unique_ptr<GuardedPages> pages_;  ///< instead of the buffer
  std::size_t offset_ = 0;
  std::size_t length_ = 0;
};

}  // namespace mps::detail
