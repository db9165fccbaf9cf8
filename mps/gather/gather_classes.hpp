#pragma once

#include "mps/core/kernel/kernel_class.hpp"
#include "mps/gather/gather.hpp"

namespace mps::detail {

/// Kernels over arrays.
using GatherClasses = KernelClasses<NDArrayGather, NDArrayGatherGradient>;

}  // namespace mps::detail
