#pragma once

#include <array>
#include <cstdint>

namespace mps::detail {

/// What a window computes; dilated max pooling is Max with a dilation in the axes.
enum class PoolingKind : std::uint8_t { Max, Average, L2Norm };
inline constexpr std::array kPoolingKinds{PoolingKind::Max, PoolingKind::Average, PoolingKind::L2Norm};

}  // namespace mps::detail
