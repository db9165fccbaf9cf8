#pragma once

#include <cstdint>

namespace mps {

/// What a reduction makes of the elements along its axis.
enum class ReductionOperation : std::uint8_t { Min, Max, Sum, Mean, ArgumentMin, ArgumentMax };

/// The axis that a reduction takes away. Row: over x, one value for each row and channel. Column: over y. Spatial: over
/// both.
enum class ReductionAxis : std::uint8_t { Row, Column, FeatureChannels, Spatial };

}  // namespace mps
