#pragma once

#include <cstdint>

#include "mtl/stream.hpp"

/// What the tests of this folder run on a GPU. Host code includes this.
namespace mps::detail::testing {

/// Words of shared memory in a block of these kernels.
inline constexpr std::int32_t kSharedWords = 12 << 10;

/// Blocks that write a number into all their shared memory.
void setSharedMemory(mtl::Stream& stream, unsigned blocks, std::int32_t number);
/// Blocks that copy their shared memory, unwritten: `words` has room for blocks * kSharedWords.
void copyUnsetSharedMemory(mtl::Stream& stream, unsigned blocks, std::int32_t* words);

}  // namespace mps::detail::testing
