#pragma once

#include "mps/core/types/tensor_shape.hpp"

namespace mps::detail {

/// Whether no two elements share memory. Each stride, from the smallest on, has to be at least what the smaller ones
/// span; those that keep elements apart in another way do not count.
[[nodiscard]] bool elementsAreApart(const TensorShape& shape);

}  // namespace mps::detail
