#pragma once

#include <cstdint>

namespace mps::detail {

/// What a window computes; dilated max pooling is Max with a dilation in the axes.
enum class PoolingKind : std::uint8_t { Max, Average, L2Norm };

}  // namespace mps::detail
