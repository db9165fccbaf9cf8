#pragma once

#include <memory>
#include <span>

#include "mps/upsampling/upsampling_tiles_cuda.hpp"

namespace mps::detail::cuda {

/// A kernel for weighted sums of many rows and columns, each of which few results take: an image becomes smaller.
/// @param rows, columns of the destination @return null: there is no such kernel
std::unique_ptr<const TilePlan> makeShrinkPlan(const TensorShape& input, const TensorShape& destination,
                                               std::span<const AxisTaps> rows,
                                               std::span<const AxisTaps> columns);

}  // namespace mps::detail::cuda
