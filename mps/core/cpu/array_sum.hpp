#pragma once

#include <cstdint>
#include <span>

#include "mtl/cpu/stream.hpp"

namespace mps::detail {

/// result[i] = arrays[0][i] + arrays[1][i] + ..., in this order; added to result[i] when accumulating.
/// @param arrays `count` of them, one behind the other
void sumArrays(const mtl::cpu::Stream& stream, const float* arrays, std::int64_t count, std::int64_t elements,
               float* result, bool accumulate);

/// The first of several arrays, one behind the other.
struct ArraySum {
  float* first = nullptr;
  std::int64_t elements = 0;  ///< of each
};

/// Adds `count - 1` arrays behind each first one to it, in their order: first[i] += first[elements + i] + ...
void sumArrays(const mtl::cpu::Stream& stream, std::span<const ArraySum> sums, std::int64_t count);

/// to[i] += from[i], by one thread.
void addArray(const float* from, std::int64_t count, float* to);

}  // namespace mps::detail
