#pragma once

#include <cstddef>

#include "mps/core/types/storage.hpp"

namespace mps::detail {

/// Adjacent float32 or float16 values in memory, for kernels that convert between memory and registers: no
/// float32 copy is made, and memory is read while the processor computes. Lanes::load and Lanes::store
/// (vector_runs-inl.hpp) take them; the format is a branch that the processor foresees, not a second
/// instance of the kernel.
struct ConstFloatRun {
  ConstFloatRun() = default;
  ConstFloatRun(const float* values) : address(values) {}  // NOLINT: implicit, as every float* is such a run
  explicit ConstFloatRun(const Float16* values) : address(values), isHalf(true) {}
  explicit operator bool() const { return address != nullptr; }

  const void* address = nullptr;
  bool isHalf = false;
};

struct FloatRun {
  FloatRun() = default;
  FloatRun(float* values) : address(values) {}  // NOLINT: implicit
  explicit FloatRun(Float16* values) : address(values), isHalf(true) {}
  explicit operator bool() const { return address != nullptr; }

  void* address = nullptr;
  bool isHalf = false;
  bool isNonTemporal = false;  ///< whole vectors are written by non-temporal stores where they are aligned
};

/// The run without its first `count` values.
inline ConstFloatRun operator+(ConstFloatRun run, std::size_t count) {
  run.address = static_cast<const std::byte*>(run.address) + (count << (run.isHalf ? 1U : 2U));
  return run;
}
inline FloatRun operator+(FloatRun run, std::size_t count) {
  run.address = static_cast<std::byte*>(run.address) + (count << (run.isHalf ? 1U : 2U));
  return run;
}

}  // namespace mps::detail
