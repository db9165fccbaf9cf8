#pragma once

#include <cstdint>

#include "mtl/cpu/stream.hpp"

namespace mps::detail {

/// result[i] = arrays[0][i] + arrays[1][i] + ..., in this order; added to result[i] when accumulating.
/// @param arrays `count` of them, one behind the other
void sumArrays(const mtl::cpu::Stream& stream, const float* arrays, std::int64_t count, std::int64_t elements,
               float* result, bool accumulate);

/// to[i] += from[i], by one thread.
void addArray(const float* from, std::int64_t count, float* to);

}  // namespace mps::detail
